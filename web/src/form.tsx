/** The form of a tool's arguments, drawn by react-jsonschema-form from its JSON Schema. */
// Not from the root, which also exports a registry of tests that needs another validator.
import Form from "@rjsf/core/lib/components/Form.js";
import type {
  ArrayFieldItemTemplateProps,
  ArrayFieldTemplateProps,
  FieldTemplateProps,
  IconButtonProps,
  MultiSchemaFieldTemplateProps,
  ObjectFieldTemplateProps,
  RJSFSchema,
  WidgetProps,
} from "@rjsf/utils";
import { useMemo, useState } from "preact/hooks";
import { dropEmpty, toFormSchema, type ErrorTree } from "./schema";
import { formatBytes, plural, visible } from "./text";
import type { Arguments, Json } from "./types";
import { validator } from "./validator";

/** The engine fills defaults in, so that the form shows them and does not send them. */
function describeDefault(value: unknown): string {
  return value === undefined || value === null ? "" : `default ${visible(JSON.stringify(value)).slice(0, 60)}`;
}

function FieldTemplate(props: FieldTemplateProps) {
  const { id, label, required, children, displayLabel, rawErrors, description, schema, hidden } = props;
  // The engine fills a constant in.
  if (hidden || (schema.const !== undefined && schema.default !== undefined)) return <div hidden>{children}</div>;
  // A list of constants is drawn as one choice.
  const isUnion = (schema.anyOf ?? schema.oneOf ?? []).some((option) => typeof option === "object" && option.const === undefined);
  // A list of files is one choice of several files.
  const isFiles = schema.type === "array" && (schema.items as RJSFSchema | undefined)?.format === "data-url";
  const isGroup = schema.type === "object" || (schema.type === "array" && !isFiles);
  const types = Array.isArray(schema.type) ? schema.type.filter((type) => type !== "null").join(" or ") : schema.type;
  return (
    <div class={`field ${rawErrors?.length ? "has-error" : ""}`}>
      {displayLabel && !isGroup && !isUnion && (
        <label for={id}>
          <span class="field-name">{label}</span> <span class="muted">{[isFiles ? "files" : types, schema.format?.replace("data-url", "file").replace("binary", "bytes"), required ? "required" : "", describeDefault(schema.default)].filter(Boolean).join(", ")}</span>
        </label>
      )}
      {children}
      {displayLabel && description}
      {(isUnion ? [] : rawErrors)?.map((error) => (
        <p key={error} class="error" id={`${id}__error`}>
          {error}
        </p>
      ))}
    </div>
  );
}

function ObjectFieldTemplate(props: ObjectFieldTemplateProps) {
  const isRoot = props.fieldPathId.path.length === 0;
  const fields = (
    <>
      {!isRoot && props.description && <p class="muted">{props.description}</p>}
      {props.properties.map((property) => (
        <div key={property.name}>{property.content}</div>
      ))}
      {props.properties.length === 0 && isRoot && <p class="muted">The tool takes no arguments.</p>}
      {props.schema.additionalProperties !== undefined && props.schema.additionalProperties !== false && !isRoot && (
        <button type="button" onClick={props.onAddProperty}>
          Add a key
        </button>
      )}
    </>
  );
  if (isRoot) return <div class="fields">{fields}</div>;
  return (
    <fieldset>
      <legend>
        {props.title} {props.required && <span class="muted">required</span>}
      </legend>
      {fields}
    </fieldset>
  );
}

function ArrayFieldTemplate(props: ArrayFieldTemplateProps) {
  return (
    <fieldset>
      <legend>
        {props.title} <span class="muted">{["list", props.required ? "required" : ""].filter(Boolean).join(", ")}</span>
      </legend>
      {props.schema.description && <p class="muted">{props.schema.description}</p>}
      {props.items}
      {props.canAdd && (
        <button type="button" onClick={props.onAddClick}>
          Add an item to {props.title}
        </button>
      )}
    </fieldset>
  );
}

function ArrayFieldItemTemplate(props: ArrayFieldItemTemplateProps) {
  const { buttonsProps, index } = props;
  return (
    <div class="array-item">
      <div class="array-value">{props.children}</div>
      {buttonsProps.hasRemove && (
        <button type="button" aria-label={`Remove item ${index + 1}`} onClick={buttonsProps.onRemoveItem}>
          Remove
        </button>
      )}
    </div>
  );
}

function MultiSchemaFieldTemplate(props: MultiSchemaFieldTemplateProps) {
  return (
    <div class="union">
      <label class="field">
        <span>Kind of {props.schema.title ?? "value"}</span>
        {props.selector}
      </label>
      {props.optionSchemaField}
    </div>
  );
}

function RemoveButton(props: IconButtonProps) {
  return (
    <button type="button" onClick={props.onClick as () => void}>
      Remove
    </button>
  );
}

/** Files as base64, which `Image`, `Audio` and `Base64Bytes` take; several for a list of them. */
function FileWidget(props: WidgetProps) {
  const isList = Boolean(props.multiple);
  const values = (isList ? (props.value as unknown[] | undefined) : [props.value])?.filter((each) => typeof each === "string" && each) ?? [];
  const size = values.reduce((sum: number, each) => sum + countBytes(each as string), 0);
  const items = props.schema.items as RJSFSchema | undefined;
  const isUrlSafe = (isList ? items : props.schema)?.contentEncoding === "base64url";
  const read = async (files: FileList | null) => {
    if (!files?.length) return;
    const texts = await Promise.all([...files].map((file) => toBase64(file, isUrlSafe)));
    props.onChange(isList ? [...values, ...texts] : texts[0]);
  };
  return (
    <div class="file">
      <input id={props.id} type="file" multiple={isList} onChange={(event) => void read((event.target as HTMLInputElement).files)} />
      {values.length > 0 && (
        <span class="muted">
          {isList && `${plural(values.length, "file")}, `}
          {formatBytes(size)}{" "}
          <button type="button" onClick={() => props.onChange(isList ? [] : undefined)}>
            {values.length > 1 ? "Remove the files" : "Remove the file"}
          </button>
        </span>
      )}
    </div>
  );
}

function countBytes(base64: string): number {
  return Math.floor((base64.replace(/=+$/, "").length * 3) / 4);
}

function toBase64(file: File, isUrlSafe: boolean): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onerror = () => reject(reader.error ?? new Error("The file cannot be read."));
    reader.onload = () => {
      const text = String(reader.result).replace(/^data:[^,]*,/, "");
      resolve(isUrlSafe ? text.replaceAll("+", "-").replaceAll("/", "_") : text);
    };
    reader.readAsDataURL(file);
  });
}

/** `bytes`, which a tool gets as the UTF-8 of a text: typed, or from a file of text. */
function TextFileWidget(props: WidgetProps) {
  const [problem, setProblem] = useState("");
  const text = typeof props.value === "string" ? props.value : "";
  const change = (next: string) => {
    setProblem("");
    props.onChange(next === "" ? props.options.emptyValue : next);
  };
  const read = async (file: File | undefined) => {
    if (!file) return;
    try {
      change(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await file.arrayBuffer()));
    } catch {
      setProblem("This file is not UTF-8 text. A tool that takes any file has a parameter of type Base64Bytes.");
    }
  };
  return (
    <div class="file">
      <textarea id={props.id} rows={2} value={text} onInput={(event) => change((event.target as HTMLTextAreaElement).value)} />
      <label class="inline">
        <span>or a file of text</span>
        <input type="file" onChange={(event) => void read((event.target as HTMLInputElement).files?.[0])} />
      </label>
      {text && <span class="muted">{formatBytes(new TextEncoder().encode(text).length)}</span>}
      {problem && (
        <p class="error" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}

const TEMPLATES = {
  FieldTemplate,
  ObjectFieldTemplate,
  ArrayFieldTemplate,
  ArrayFieldItemTemplate,
  MultiSchemaFieldTemplate,
  ButtonTemplates: { RemoveButton },
};

const WIDGETS = { FileWidget, binary: TextFileWidget };

export default function SchemaForm(props: { schema: Record<string, Json>; value: Arguments; onChange: (value: Arguments) => void; errors: ErrorTree }) {
  const schema = useMemo(() => toFormSchema(props.schema), [props.schema]);
  return (
    <Form
      schema={schema as RJSFSchema}
      validator={validator}
      formData={props.value}
      extraErrors={props.errors as never}
      onChange={(event) => props.onChange((dropEmpty(event.formData as Json) ?? {}) as Arguments)}
      templates={TEMPLATES}
      widgets={WIDGETS}
      tagName="div"
      idPrefix="argument"
      noHtml5Validate
      noValidate
      showErrorList={false}
      // A server could ask for a million items, which would freeze the page.
      experimental_defaultFormStateBehavior={{ emptyObjectFields: "skipDefaults", allOf: "skipDefaults", arrayMinItems: { populate: "never" } }}
    >
      <></>
    </Form>
  );
}

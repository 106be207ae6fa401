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
import { useMemo } from "preact/hooks";
import { dropEmpty, toFormSchema, type ErrorTree } from "./schema";
import { formatBytes, visible } from "./text";
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
  const isGroup = schema.type === "object" || schema.type === "array";
  const types = Array.isArray(schema.type) ? schema.type.filter((type) => type !== "null").join(" or ") : schema.type;
  return (
    <div class={`field ${rawErrors?.length ? "has-error" : ""}`}>
      {displayLabel && !isGroup && !isUnion && (
        <label for={id}>
          <span class="field-name">{label}</span> <span class="muted">{[types, schema.format?.replace("data-url", "file"), required ? "required" : "", describeDefault(schema.default)].filter(Boolean).join(", ")}</span>
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

/** A file becomes a `data:` URL, which `Image`, `Audio` and bytes accept as base64. */
function FileWidget(props: WidgetProps) {
  const text = typeof props.value === "string" ? props.value : "";
  const read = (file: File | undefined) => {
    if (!file) return;
    const reader = new FileReader();
    reader.onload = () => props.onChange(String(reader.result).replace(/^data:[^,]*,/, ""));
    reader.readAsDataURL(file);
  };
  return (
    <div class="file">
      <input id={props.id} type="file" onChange={(event) => read((event.target as HTMLInputElement).files?.[0])} />
      {text && (
        <span class="muted">
          {formatBytes(Math.floor((text.replace(/=+$/, "").length * 3) / 4))}{" "}
          <button type="button" onClick={() => props.onChange(undefined)}>
            Remove the file
          </button>
        </span>
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

const WIDGETS = { FileWidget };

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
      experimental_defaultFormStateBehavior={{ emptyObjectFields: "skipDefaults", allOf: "skipDefaults" }}
    >
      <></>
    </Form>
  );
}

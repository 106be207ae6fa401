/** Prepare the JSON Schema of a tool for the form, and map the problems of the engine to its fields. */
import { visible } from "./text";
import type { Json, Problem } from "./types";

export type Schema = { [key: string]: Json };

function isObject(value: Json | undefined): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const TEXT_KEYS = new Set(["title", "description"]);

/** Return the schema that the form draws: nullable fields without a choice, files as files, hidden characters shown. */
export function toFormSchema(schema: Schema): Schema {
  const result: Schema = {};
  for (const [key, value] of Object.entries(schema)) {
    if (key === "properties" || key === "$defs" || key === "definitions")
      result[key] = isObject(value)
        ? Object.fromEntries(
            Object.entries(value).map(([name, item]) => {
              if (!isObject(item)) return [name, item];
              const field = toFormSchema(item);
              // A label is the name that the model uses, so that problems and code name the same thing.
              return [name, key === "properties" ? { ...field, title: visible(name) } : field];
            }),
          )
        : value;
    else if (TEXT_KEYS.has(key) && typeof value === "string") result[key] = visible(value);
    else if (key === "enum" && Array.isArray(value) && value.some((item) => typeof item === "string" && visible(item) !== item))
      result.oneOf = value.map((item) => ({ const: item, title: visible(String(item)) }));
    else if (Array.isArray(value)) result[key] = value.map((item) => (isObject(item) && key !== "enum" && key !== "examples" ? toFormSchema(item) : item));
    else if (isObject(value) && key !== "default" && key !== "const") result[key] = toFormSchema(value);
    else result[key] = value;
  }
  const merged = mergeNullable(result);
  // The form library draws this format as the choice of a file.
  if (!isFile(merged)) return merged;
  return { ...merged, format: "data-url", contentEncoding: merged.format === "base64url" ? "base64url" : (merged.contentEncoding ?? "base64") };
}

/** Return `anyOf: [X, null]` as X that may be null; other unions keep their choices. */
function mergeNullable(schema: Schema): Schema {
  const options = schema.anyOf ?? schema.oneOf;
  if (!Array.isArray(options) || options.length !== 2) return nameOptions(schema);
  const others = options.filter((option) => !(isObject(option) && option.type === "null"));
  const [only] = others;
  if (others.length !== 1 || !isObject(only) || typeof only.type !== "string" || only.type === "object" || only.type === "array")
    return nameOptions(schema);
  const { anyOf: _any, oneOf: _one, ...rest } = schema;
  return { ...only, ...rest, type: [only.type, "null"] };
}

/** Give each choice of a union a name. */
function nameOptions(schema: Schema): Schema {
  for (const key of ["anyOf", "oneOf"]) {
    const options = schema[key];
    if (Array.isArray(options))
      schema[key] = options.map((option) =>
        isObject(option) && !option.title ? { ...option, title: describeType(option) } : option,
      );
  }
  return schema;
}

function describeType(option: Schema): string {
  if (typeof option.$ref === "string") return visible(option.$ref.split("/").at(-1) ?? "value");
  if (option.const !== undefined) return JSON.stringify(option.const);
  if (option.type === "null") return "nothing (null)";
  if (option.type === "array") return "list";
  return typeof option.type === "string" ? option.type : "value";
}

/** Return True if a text holds a file: base64 by its encoding or format. */
export function isFile(schema: Schema): boolean {
  return ["base64", "base64url"].includes(String(schema.contentEncoding)) || ["base64", "byte", "base64url"].includes(String(schema.format ?? ""));
}

/** Characters of a schema up to which the form draws it; a larger one, of a server, would freeze the page. */
const MAX_DRAWN = 100_000;

/** Return True if the form can draw a schema at once. */
export function isDrawable(schema: Schema): boolean {
  return JSON.stringify(schema).length <= MAX_DRAWN;
}

/** Return the steps of a path such as `$.items[2]['a b']`. */
export function parsePath(path: string): string[] {
  const found: string[] = [];
  for (const match of path.matchAll(/\.([^.[\]]+)|\[(\d+)\]|\[(['"])(.*?)\3\]/g)) found.push(match[1] ?? match[2] ?? match[4] ?? "");
  return found;
}

export interface ErrorTree {
  [key: string]: ErrorTree | string[] | undefined;
  __errors?: string[];
}

/** Return the problems of a call as errors of the form's fields. */
export function toFormErrors(problems: Problem[]): ErrorTree {
  const root: ErrorTree = {};
  for (const problem of problems) {
    let node = root;
    for (const step of parsePath(problem.path)) {
      // A server names its parameters: this one would change all objects of the page.
      if (step === "__proto__") break;
      node = (node[step] ??= {}) as ErrorTree;
    }
    (node.__errors ??= []).push(visible(problem.message));
  }
  return root;
}

/** Return data without the empty values that a form leaves behind. */
export function dropEmpty(value: Json | undefined): Json | undefined {
  if (Array.isArray(value)) return value.map((item) => dropEmpty(item) ?? null);
  if (!isObject(value)) return value;
  const pairs = Object.entries(value).map(([key, item]) => [key, dropEmpty(item)] as const);
  return Object.fromEntries(pairs.filter(([, item]) => item !== undefined)) as Json;
}

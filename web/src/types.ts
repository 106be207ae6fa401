/** The data of the server, as `src/toolmason/ui` and `docs/reference/events.md` define it. */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Arguments = Record<string, Json>;

export interface ToolSummary {
  name: string;
  title: string | null;
  description: string;
  effects: string[];
  source: string;
  tags: string[];
  tokens: number;
}

export interface Verdict {
  provider: string;
  status: string;
  reasons: string[];
  strict: boolean;
  not_strict: string;
  alias: string | null;
  keys: string[];
}

export interface ToolDetail extends ToolSummary {
  origin: string;
  input_schema: Record<string, Json>;
  output_schema: Record<string, Json> | null;
  providers: Verdict[];
}

export interface ToolList {
  tools: ToolSummary[];
  held_back: Record<string, string>;
  problems: string[];
}

export interface State {
  version: string;
  target: string | null;
  models: { name: string; note: string }[];
  journal: string | null;
  servers: string[];
  limits: Record<string, number | null>;
  problem: string;
}

export interface Problem {
  path: string;
  message: string;
}

export interface CallError {
  code: string;
  message: string;
  parameters?: Problem[];
  retryable?: boolean;
}

export interface Repair {
  path: string;
  rule: string;
  before: Json;
  after: Json;
}

export interface Plan {
  arguments: Arguments;
  repairs: Repair[];
  preview: string | null;
  needs_approval: boolean;
  error: CallError | null;
}

export interface ApprovalRequest {
  id: string;
  call_id?: string;
  tool: string;
  path?: string;
  arguments: Arguments;
  preview: string | null;
  effects: string[];
  reason: string;
}

export type Part =
  | { type: "text"; text: string }
  | { type: "image" | "audio"; data: string; mime_type: string }
  | { type: "resource_link"; uri: string; name?: string; mime_type?: string; description?: string }
  | { type: "resource"; uri: string; text?: string; data?: string; mime_type?: string };

export interface CallResult {
  call_id: string;
  name: string;
  ok: boolean;
  content: Part[];
  structured: Json;
  error: CallError | null;
  attempts: number;
  duration: number;
  repairs: Repair[];
  origin: string;
  request: ApprovalRequest | null;
}

export type CallEvent =
  | { type: "progress"; done: number; total: number | null; message: string | null }
  | { type: "result"; result: CallResult };

export type Answer = boolean | { approved: boolean; reason?: string; arguments?: Arguments };

export interface Usage {
  input_tokens: number;
  output_tokens: number;
}

export interface Reply {
  text: string;
  finish: string;
  problem: string;
  run: string;
  usage: Usage;
  cost?: number | null;
  output?: Json;
  pending: ApprovalRequest[];
}

export interface ChatCall {
  id: string;
  name: string;
  arguments: Arguments | string;
}

export interface ChatResult {
  call_id: string;
  name: string;
  content: Part[];
  error?: CallError;
}

export type ChatEvent =
  | { type: "Started"; run: string }
  | { type: "TextDelta" | "ThoughtDelta"; text: string }
  | { type: "CallOpened"; id: string; name: string }
  | { type: "ArgumentsDelta"; id: string; text: string }
  | { type: "CallClosed" | "CallStarted"; call: ChatCall }
  | { type: "CallProgress"; progress: { call_id: string; done: number; total: number | null; message: string | null } }
  | { type: "CallFinished"; call: ChatCall; result: ChatResult }
  | { type: "StepFinished"; number: number }
  | { type: "AnswerProgress"; data: Json }
  | { type: "Compacted"; messages: number }
  | { type: "Delegated"; path: string[]; run: string; event: ChatEvent }
  | { type: "Done"; reply: Reply }
  | { type: "Failed"; error: { code: string; message: string } };

export interface ServerEntry {
  name: string;
  ok: boolean;
  latency: number | null;
  error: string | null;
  since: number | null;
  needs_auth: boolean;
  last_error: string | null;
  failed_at: number | null;
  kind: string;
  pinned: boolean;
  trusted: boolean;
  is_locked: boolean;
  tools: string[];
  prompts: string[];
  resources: string[];
  held_back: Record<string, string>;
}

export interface Drift {
  file: string;
  digests: Record<string, string>;
  changes: { name: string; status: string; before: string; after: string }[];
}

export interface RunEntry {
  run: string;
  state: string;
  begun: number;
  finish: string | null;
  steps: number;
  held: boolean;
  asked: string;
  text: string | null;
}

export interface Span {
  name: string;
  depth: number;
  start: number;
  end: number;
  note: string;
  failed: boolean;
}

export interface RunDetail extends RunEntry {
  effects: { key: string; kind: string; name: string; arguments: Arguments; attempt: number; state: string }[];
  interrupted: string[];
  spans: Span[];
}

export interface Change {
  type: "hello" | "tools" | "problem";
  problem?: string;
  message?: string;
}

// A conversation as blocks small enough to lay out in one frame: heads of turns, pieces of text, tool calls. Only the
// blocks in view are in the page, so the length of a transcript does not matter.
import type { Details } from "../../api/rollouts";

const PIECE = 2_000;
/** Longer texts begin folded. */
const FOLD_ABOVE = 16_000;

export type Message = { [name: string]: unknown };

export type Block =
  | { kind: "turn"; key: string; role: string; name: string; size: number; shown: boolean }
  | {
      kind: "text";
      key: string;
      role: string;
      text: string;
      mono: boolean;
      last: boolean;
      inCall: boolean;
    }
  | { kind: "more"; key: string; fold: string; size: number; open: boolean; inCall: boolean }
  | {
      kind: "call";
      key: string;
      fold: string;
      open: boolean;
      name: string;
      brief: string;
      state: "ok" | "error" | "none";
      seconds?: number;
    }
  | { kind: "label"; key: string; text: string };

type Call = { id: string; name: string; args: string; brief: string };

/** Every block of the conversation; `open` holds what was unfolded, by key. */
export function blocksOf(details: Details, open: ReadonlySet<string>): Block[] {
  const messages = [...details.promptMessages, ...details.messages] as Message[];
  const start = details.promptMessages.length;
  // Calls of an example in the prompt were not made in this rollout: its results and events are not theirs.
  const [given, made] = [resultsOf(messages.slice(0, start)), resultsOf(messages.slice(start))];
  const events = [...details.toolEvents] as { name?: string; ok?: boolean; seconds?: number }[];
  const shown = new Set<Message>();
  const blocks: Block[] = [];
  messages.forEach((message, index) => {
    if (shown.has(message)) return;
    // An answer the model was shown as an example is not one it wrote.
    const isGiven = index < start && message.role === "assistant";
    const text = textOf(message.content);
    const calls = callsOf(message);
    const role = typeof message.role === "string" ? message.role : "unknown";
    const name = role === "tool" && typeof message.name === "string" ? message.name : "";
    blocks.push({ kind: "turn", key: `${index}`, role, name, size: text.length, shown: isGiven });
    const thoughts = textOf(message.reasoning_content ?? message.reasoning);
    if (thoughts) addText(blocks, `${index}:r`, thoughts, "thought", open, false);
    if (text || !calls.length) addText(blocks, `${index}:t`, text, role, open, false);
    calls.forEach((call, at) => {
      const result = (index < start ? given : made).get(call.id);
      if (result) shown.add(result);
      const event = index < start ? undefined : events.shift();
      addCall(blocks, `${index}:c${at}`, call, result, event, open);
    });
  });
  return blocks;
}

/** Tool results by the id of their call. */
function resultsOf(messages: Message[]): Map<string, Message> {
  return new Map(
    messages.flatMap((message) =>
      message.role === "tool" && typeof message.tool_call_id === "string" ? [[message.tool_call_id, message]] : [],
    ),
  );
}

function addCall(
  blocks: Block[],
  key: string,
  call: Call,
  result: Message | undefined,
  event: { ok?: boolean; seconds?: number } | undefined,
  open: ReadonlySet<string>,
): void {
  const failed = event?.ok === false;
  // A failed call shows what went wrong without a click.
  const isOpen = open.has(key) !== failed;
  const state = event === undefined && !result ? "none" : failed ? "error" : "ok";
  blocks.push({
    kind: "call",
    key,
    fold: key,
    open: isOpen,
    name: call.name,
    brief: call.brief,
    state,
    seconds: event?.seconds,
  });
  if (!isOpen) return;
  blocks.push({ kind: "label", key: `${key}:al`, text: "Arguments" });
  addText(blocks, `${key}:a`, call.args, "args", open, true);
  blocks.push({ kind: "label", key: `${key}:rl`, text: result ? "Result" : "No result" });
  if (result) addText(blocks, `${key}:r`, pretty(textOf(result.content)), failed ? "failed" : "result", open, true);
}

function addText(
  blocks: Block[],
  key: string,
  text: string,
  role: string,
  open: ReadonlySet<string>,
  inCall: boolean,
): void {
  const long = text.length > FOLD_ABOVE;
  const whole = !long || open.has(key);
  const shown = whole ? text : text.slice(0, 2 * PIECE);
  const mono = inCall || role === "tool";
  if (long && whole)
    blocks.push({ kind: "more", key: `${key}:fold`, fold: key, size: text.length, open: true, inCall });
  let from = 0;
  for (const text of piecesOf(shown)) {
    blocks.push({
      kind: "text",
      key: `${key}:${from}`,
      role,
      text,
      mono,
      last: from + text.length >= shown.length,
      inCall,
    });
    from += text.length;
  }
  if (long) blocks.push({ kind: "more", key: `${key}:more`, fold: key, size: text.length, open: whole, inCall });
}

/** `text` in pieces that end at a line or a word where there is one. */
export function piecesOf(text: string, size = PIECE): string[] {
  if (text.length <= size * 1.5) return [text];
  const pieces: string[] = [];
  for (let from = 0; from < text.length; ) {
    let to = Math.min(text.length, from + size);
    if (to < text.length) {
      // Only the second half is looked through: a text of one word must not be read from its beginning each time.
      const half = from + (size >> 1);
      const end = text.slice(half, to);
      const line = end.lastIndexOf("\n");
      const word = end.lastIndexOf(" ");
      if (line >= 0) to = half + line + 1;
      else if (word >= 0) to = half + word + 1;
      else if (/[\ud800-\udbff]/.test(text[to - 1] ?? "")) to -= 1;
    }
    pieces.push(text.slice(from, to));
    from = to;
  }
  return pieces;
}

/** The text of a message: plain, or of its parts. Pictures are named, never loaded. */
export function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (content === null || content === undefined) return "";
  if (Array.isArray(content)) return content.map(partText).join("\n");
  return JSON.stringify(content, null, 2);
}

/** One part of a message: text, or the name of what it is. */
export function partText(part: unknown): string {
  if (typeof part === "string") return part;
  if (part && typeof part === "object") {
    if ("text" in part && typeof part.text === "string") return part.text;
    if ("type" in part && typeof part.type === "string") return `[${part.type}]`;
  }
  return JSON.stringify(part);
}

function callsOf(message: Message): Call[] {
  if (!Array.isArray(message.tool_calls)) return [];
  return message.tool_calls.map((raw): Call => {
    const call = (raw ?? {}) as {
      id?: unknown;
      name?: unknown;
      function?: { name?: unknown; arguments?: unknown };
      arguments?: unknown;
    };
    const name = String(call.function?.name ?? call.name ?? "unknown tool");
    const given = call.function?.arguments ?? call.arguments ?? "";
    const args = typeof given === "string" ? given : JSON.stringify(given);
    return { id: String(call.id ?? ""), name, args: pretty(args), brief: briefly(args) };
  });
}

/** JSON with line breaks; anything else as it is. Very long texts stay as they are. */
export function pretty(text: string): string {
  const first = text.trimStart()[0];
  if ((first !== "{" && first !== "[") || text.length > 500_000) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Arguments in a line: `query: "tower", limit: 3`. */
function briefly(text: string): string {
  if (text.length < 20_000) {
    try {
      const value: unknown = JSON.parse(text);
      if (value && typeof value === "object" && !Array.isArray(value)) {
        const parts = Object.entries(value).map(([name, each]) => `${name}: ${JSON.stringify(each)}`);
        return parts.join(", ").slice(0, 160);
      }
    } catch {
      // It is shown as it came.
    }
  }
  return text.slice(0, 160);
}

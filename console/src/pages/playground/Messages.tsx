// Messages as they are: model text is shown as text, tool calls folded with their arguments.
import type { ReactNode } from "react";
import type { ChatMessage, ToolCall, Turn } from "../../api/playground";
import { cx, ErrorNote, Fold, format, Icon, Note, Pill, Plain, Spinner } from "../../ui";
import { partText, pretty } from "../rollouts/blocks";

const WHO: Record<string, string> = { user: "You", assistant: "Model", system: "System", tool: "Tool" };

export function inWords(content: unknown): string {
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.map(partText).join("");
  return content === null || content === undefined ? "" : JSON.stringify(content, null, 2);
}

/** A message that was there before anybody spoke. */
export function Said({ message }: { message: ChatMessage }) {
  return <Bubble who={message.role} text={inWords(message.content)} given={message.role === "assistant"} />;
}

/** `scored`: whether the reward it came with is that of its answer. */
export function TurnView({ turn, scored, actions }: { turn: Turn; scored: boolean; actions?: ReactNode }) {
  const answered = new Set(turn.messages.filter((each) => each.role === "tool").map((each) => each.tool_call_id));
  const going = turn.state === "going";
  return (
    <>
      {turn.said && <Bubble who="user" text={turn.said} />}
      {turn.messages.map((message, index) =>
        message.role === "tool" ? (
          <ToolResult key={index} message={message} />
        ) : (
          <Answer key={index} message={message} answered={answered} going={going} />
        ),
      )}
      {turn.draft && <Bubble who="assistant" text={turn.draft} drawing={going} />}
      {going && !turn.draft && !turn.messages.length && (
        <div className="bubble bubble-wait">
          <Spinner label="thinking …" />
        </div>
      )}
      {turn.state === "stopped" && <Note tone="info">Stopped. The model forgets this turn.</Note>}
      {turn.state === "failed" && <ErrorNote error={new Error(turn.problem ?? "The turn failed.")} />}
      {turn.state === "done" && (
        <footer className="turn-foot">
          {scored && <Rewards turn={turn} />}
          <span className="muted small num">
            {turn.tokens !== undefined && format.plural(turn.tokens, "token")}
            {turn.seconds !== undefined && ` in ${format.number(turn.seconds, 2)} s`}
          </span>
          {actions}
        </footer>
      )}
    </>
  );
}

function Bubble({ who, text, drawing, given }: { who: string; text: string; drawing?: boolean; given?: boolean }) {
  return (
    <div className={cx("bubble", `bubble-${who}`)}>
      <span className="bubble-who">
        {Object.hasOwn(WHO, who) ? WHO[who] : who}
        {given && <span className="muted"> part of the prompt</span>}
      </span>
      <pre className={cx("bubble-text", drawing && "bubble-drawing")}>
        <Plain text={text} />
      </pre>
    </div>
  );
}

function Answer({
  message,
  answered,
  going,
}: {
  message: ChatMessage;
  answered: Set<string | undefined>;
  going: boolean;
}) {
  const text = inWords(message.content);
  const calls = message.tool_calls ?? [];
  return (
    <>
      {(text || !calls.length) && <Bubble who="assistant" text={text || "(empty)"} />}
      {calls.map((call, index) => (
        <Call key={index} call={call} waits={going && !answered.has(call.id)} />
      ))}
    </>
  );
}

function Call({ call, waits }: { call: ToolCall; waits: boolean }) {
  const raw = call.function?.arguments;
  const shown = typeof raw === "string" ? pretty(raw) : inWords(raw);
  return (
    <div className="tool">
      <Fold
        title={
          <span className="tool-title">
            <Icon name="settings" size={13} /> <code>{call.function?.name ?? "tool"}</code>
            <span className="muted clip tool-brief">
              <Plain text={shown.replace(/\s+/g, " ").slice(0, 80)} />
            </span>
          </span>
        }
        aside={waits ? <Spinner /> : undefined}
      >
        <pre>
          <Plain text={shown} />
        </pre>
      </Fold>
    </div>
  );
}

function ToolResult({ message }: { message: ChatMessage }) {
  const text = inWords(message.content);
  return (
    <div className="tool tool-result">
      <Fold
        title={
          <span className="tool-title">
            <Icon name="chevron" size={13} /> <span className="muted">returned</span>
            <span className="clip tool-brief">
              <Plain text={text.replace(/\s+/g, " ").slice(0, 80)} />
            </span>
          </span>
        }
      >
        <pre>
          <Plain text={text} />
        </pre>
      </Fold>
    </div>
  );
}

function Rewards({ turn }: { turn: Turn }) {
  if (!turn.rewards) return null;
  const total = turn.total ?? null;
  return (
    <span className="turn-rewards">
      <Pill tone={total !== null && total > 0 ? "good" : "neutral"}>reward {format.number(total, 2)}</Pill>
      {Object.entries(turn.rewards).map(([name, value]) => (
        <span key={name} className="small soft">
          <Plain text={name} /> <strong className="num">{format.number(value, 2)}</strong>
        </span>
      ))}
    </span>
  );
}

import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import type { Side } from "../../api/playground";
import { Button, Icon, KeyHint } from "../../ui";

type ComposerProps = {
  sides: Side[];
  hasExample: boolean;
  onSay: (content: string) => void;
  onStop: () => void;
  onAnew: () => void;
  /** Its height may have changed. */
  onGrow: () => void;
};

/** Where a message is typed. Enter sends it, Shift and Enter start a new line. */
export function Composer({ sides, hasExample, onSay, onStop, onAnew, onGrow }: ComposerProps) {
  const [text, setText] = useState("");
  const area = useRef<HTMLTextAreaElement>(null);
  const going = sides.some((side) => side.going);
  const open = sides.every((side) => side.id !== null && side.info?.status !== "ended");
  const begun = sides.some((side) => side.turns.length > 0);
  const canPlay = hasExample && !begun && text.trim() === "";
  const ready = open && !going && (text.trim() !== "" || canPlay);
  const send = () => {
    if (!ready) return;
    onSay(text.trim());
    setText("");
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
      event.preventDefault();
      send();
    }
    if (event.key === "Escape" && going) onStop();
  };
  // It grows with its text
  useEffect(() => {
    const box = area.current;
    if (!box) return;
    box.style.height = "auto";
    box.style.height = `${Math.min(220, box.scrollHeight + 2)}px`;
    onGrow();
  }, [text, onGrow]);
  return (
    <div className="composer">
      <textarea
        ref={area}
        rows={1}
        value={text}
        aria-label="Message"
        placeholder={
          hasExample && !begun
            ? "Play the example, or ask something else …"
            : sides.length > 1
              ? "Message both …"
              : "Message …"
        }
        onChange={(event) => setText(event.target.value)}
        onKeyDown={key}
      />
      <div className="composer-foot">
        <span className="muted small composer-hint">
          <KeyHint>Enter</KeyHint> sends, <KeyHint>Shift</KeyHint> <KeyHint>Enter</KeyHint> starts a new line
        </span>
        {begun && (
          <Button kind="quiet" size="small" onClick={onAnew} disabled={going}>
            New conversation
          </Button>
        )}
        {going ? (
          <Button size="small" icon={<Icon name="stop" size={12} />} onClick={onStop}>
            Stop
          </Button>
        ) : (
          <Button kind="primary" size="small" disabled={!ready} onClick={send}>
            {canPlay ? "Play the example" : "Send"}
          </Button>
        )}
      </div>
    </div>
  );
}

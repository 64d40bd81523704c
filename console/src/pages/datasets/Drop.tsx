// A place to drop a file, and a button for those who do not drag.
import { type DragEvent, useId, useRef, useState } from "react";
import { MIN_ROWS, SUFFIXES } from "../../api/datasets.generated";
import { Button, cx, ErrorNote, Icon } from "../../ui";
import "./datasets.css";

type DropProps = { onFiles: (files: File[]) => void; busy: boolean; error: unknown; compact?: boolean; text?: string };

export function Drop({ onFiles, busy, error, compact, text = "Drop a file here" }: DropProps) {
  const input = useRef<HTMLInputElement>(null);
  const hint = useId();
  const [over, setOver] = useState(false);
  const drag = (on: boolean) => (event: DragEvent) => {
    event.preventDefault();
    setOver(on);
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const files = [...event.dataTransfer.files];
    if (files.length) onFiles(files);
  };
  return (
    <>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the button inside does the same by keyboard */}
      <div
        className={cx("drop", over && "drop-over", compact && "drop-compact")}
        onDragOver={drag(true)}
        onDragLeave={drag(false)}
        onDrop={drop}
      >
        <Icon name="upload" size={compact ? 16 : 22} className="drop-icon" />
        <div className="drop-words">
          <span>{text}</span>
          <span className="muted small" id={hint}>
            One example per row, at least {MIN_ROWS} rows. CSV, TSV, JSON, JSON Lines or Parquet.
          </span>
        </div>
        <Button busy={busy} aria-describedby={hint} onClick={() => input.current?.click()}>
          Choose a file
        </Button>
        <input
          ref={input}
          type="file"
          hidden
          accept={SUFFIXES.join(",")}
          aria-label="Dataset file"
          onChange={(event) => {
            const files = [...(event.target.files ?? [])];
            event.target.value = "";
            if (files.length) onFiles(files);
          }}
        />
      </div>
      {Boolean(error) && <ErrorNote title="The file was not accepted" error={error} />}
    </>
  );
}

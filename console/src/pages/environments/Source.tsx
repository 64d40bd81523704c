import { useMemo } from "react";
import type { EnvironmentDetails } from "../../api/environments";
import { Card, Copy, Empty, marked, Note, Plain, Segments, useSearch } from "../../ui";
import { lines } from "./colour";

export function Source({ environment }: { environment: EnvironmentDetails }) {
  const search = useSearch();
  // The longest is the one to read; package files come after it.
  const files = [...environment.files].sort((a, b) => b.text.length - a.text.length);
  const file = files.find((each) => each.path === search.get("file")) ?? files[0];
  if (!file) {
    return (
      <Empty title="The bundle contains no source" icon="environment">
        It was packed without the source of its class. The manifest lists what it would import.
      </Empty>
    );
  }
  return (
    <Card
      flush
      title={files.length > 1 ? <FileChoice /> : <Plain text={file.path} />}
      actions={<Copy text={file.text} label="Copy the source" />}
    >
      {file.truncated && <Note tone="info">Only the first part of this file is shown.</Note>}
      <Code text={file.text} label={file.path} />
    </Card>
  );

  function FileChoice() {
    return (
      <Segments
        label="File"
        value={file?.path ?? ""}
        onChange={(path) => search.set({ file: path })}
        options={files.map((each) => ({ value: each.path, label: each.path }))}
      />
    );
  }
}

/** Python with line numbers. */
export function Code({ text, label }: { text: string; label: string }) {
  const shown = useMemo(() => lines(text.replace(/\n$/, "")), [text]);
  return (
    <section className="code" tabIndex={0} aria-label={label}>
      <pre className="code-numbers" aria-hidden="true">
        {shown.map((_, index) => `${index + 1}\n`).join("")}
      </pre>
      <pre className="code-text">
        {shown.map((pieces, index) => (
          <span key={index}>
            {pieces.map((piece, at) =>
              piece.kind ? (
                <span key={at} className={`code-${piece.kind}`}>
                  {marked(piece.text)}
                </span>
              ) : (
                marked(piece.text)
              ),
            )}
            {"\n"}
          </span>
        ))}
      </pre>
    </section>
  );
}

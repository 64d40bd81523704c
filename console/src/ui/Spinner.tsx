export function Spinner({ label }: { label?: string }) {
  return (
    <span className="spinner-box" role={label ? "status" : undefined}>
      <span className="spinner" aria-hidden="true" />
      {label && <span className="muted">{label}</span>}
    </span>
  );
}

/** What a page shows until its data is there: grey bars, after a moment. */
export function Skeleton({ lines = 3, height }: { lines?: number; height?: number }) {
  if (height) return <div className="skeleton" style={{ height }} />;
  return (
    <div className="stack" aria-hidden="true">
      {Array.from({ length: lines }, (_, line) => (
        <div className="skeleton" key={line} style={{ height: 14, width: `${90 - ((line * 23) % 50)}%` }} />
      ))}
    </div>
  );
}

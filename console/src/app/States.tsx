import { Button, ErrorNote, Page, Skeleton } from "../ui";

export function Loading() {
  return (
    <div className="page">
      <Skeleton lines={4} />
    </div>
  );
}

/** A page that broke. The rest of the console still works. */
export function Crash({ error }: { error: unknown }) {
  const stale = /dynamically imported module|module script/i.test(String(error));
  return (
    <Page title={stale ? "The console was updated" : "This page crashed"}>
      <ErrorNote
        error={stale ? new Error("This page belongs to an older version. Reload it to get the new one.") : error}
      />
      <div>
        <Button onClick={() => window.location.reload()}>Reload the page</Button>
      </div>
    </Page>
  );
}

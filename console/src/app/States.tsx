import { Button, Page, Skeleton } from "../ui";
import { ErrorNote } from "../ui/Empty";

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
    <Page title={stale ? "The console was updated" : "This page broke"}>
      <ErrorNote
        error={stale ? new Error("This page belongs to an older version. Load it again to get the new one.") : error}
      />
      <div>
        <Button onClick={() => window.location.reload()}>Load the page again</Button>
      </div>
    </Page>
  );
}

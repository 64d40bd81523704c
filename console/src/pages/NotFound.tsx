import { Empty, Link, Page } from "../ui";

export default function NotFound() {
  return (
    <Page title="Not found">
      <Empty
        title="There is nothing at this address"
        icon="search"
        actions={
          <Link className="button button-primary" href="/experiments">
            Go to the runs
          </Link>
        }
      >
        Check it for typing mistakes, or use the menu.
      </Empty>
    </Page>
  );
}

import { Empty, Page } from "../ui";

export default function NotFound() {
  return (
    <Page title="Not found">
      <Empty title="There is nothing at this address" command="benchmax runs list">
        Your runs are under Runs.
      </Empty>
    </Page>
  );
}

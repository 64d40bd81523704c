// Settings: what lets programs and people in, and what runs may use. One tab an address.
import { useParams } from "@tanstack/react-router";
import { type ComponentType, lazy, Suspense } from "react";
import { Empty, Page, Skeleton, Tabs } from "../ui";
import "./settings/settings.css";

const TABS: { id: string; label: string; view: ComponentType }[] = [
  { id: "keys", label: "API keys", view: lazy(() => import("./settings/Keys")) },
  { id: "endpoints", label: "Endpoints", view: lazy(() => import("./settings/Endpoints")) },
  { id: "secrets", label: "Secrets", view: lazy(() => import("./settings/Secrets")) },
  { id: "webhooks", label: "Webhooks", view: lazy(() => import("./settings/Webhooks")) },
  { id: "account", label: "Account", view: lazy(() => import("./settings/Account")) },
  { id: "users", label: "Users", view: lazy(() => import("./settings/Users")) },
  { id: "audit", label: "Audit log", view: lazy(() => import("./settings/Audit")) },
];

export default function Settings() {
  const { tab = "keys" } = useParams({ strict: false });
  const current = TABS.find((each) => each.id === tab);
  return (
    <Page title="Settings">
      <Tabs
        label="Parts of the settings"
        current={tab}
        tabs={TABS.map((each) => ({ id: each.id, label: each.label, href: `/settings/${each.id}` }))}
      />
      <Suspense fallback={<Skeleton lines={5} />}>
        {current ? <current.view /> : <Empty title="The settings have no such tab" />}
      </Suspense>
    </Page>
  );
}

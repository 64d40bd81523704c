// The caller's own things: keys, endpoints, secrets, webhooks, users, the audit log, devices that ask to come in.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { ApiError, api, type Schemas, unwrap } from "./client";
import { useRenewing } from "./renew";

export type KeyInfo = Schemas["KeyInfo"];
export type Endpoint = Schemas["EndpointInfo"];
export type Secret = Schemas["SecretName"];
export type User = Schemas["UserInfo"];
export type AuditLine = Schemas["AuditLine"];

const AUDIT_PAGE = 100;

export function useApiKeys() {
  return useQuery({ queryKey: ["keys"], queryFn: () => unwrap(api.GET("/v1/keys")), select: (found) => found.keys });
}

export function useCreateKey() {
  return useRenewing((body: Schemas["KeyRequest"]) => unwrap(api.POST("/v1/keys", { body })), ["keys"], ["audit"]);
}

export function useRevokeKey() {
  return useRenewing(
    (key_id: string) => unwrap(api.DELETE("/v1/keys/{key_id}", { params: { path: { key_id } } })),
    ["keys"],
    ["audit"],
  );
}

export function useEndpoints() {
  return useQuery({
    queryKey: ["endpoints"],
    queryFn: () => unwrap(api.GET("/v1/endpoints")),
    select: (found) => found.endpoints,
  });
}

export function useCreateEndpoint() {
  return useRenewing(
    (body: Schemas["EndpointRequest"]) => unwrap(api.POST("/v1/endpoints", { body })),
    ["endpoints"],
    ["audit"],
  );
}

export function useDeleteEndpoint() {
  return useRenewing(
    (endpoint_id: string) => unwrap(api.DELETE("/v1/endpoints/{endpoint_id}", { params: { path: { endpoint_id } } })),
    ["endpoints"],
    ["audit"],
  );
}

export function useSecrets() {
  return useQuery({
    queryKey: ["secrets"],
    queryFn: () => unwrap(api.GET("/v1/secrets")),
    select: (found) => found.secrets,
  });
}

export function usePutSecret() {
  return useRenewing(
    ({ name, value }: { name: string; value: string }) =>
      unwrap(api.PUT("/v1/secrets/{name}", { params: { path: { name } }, body: { value } })),
    ["secrets"],
    ["audit"],
  );
}

export function useDeleteSecret() {
  return useRenewing(
    (name: string) => unwrap(api.DELETE("/v1/secrets/{name}", { params: { path: { name } } })),
    ["secrets"],
    ["audit"],
  );
}

export type Webhook = Schemas["WebhookInfo"];
export type Delivery = Schemas["WebhookDelivery"];

const waits = (found: { webhooks: Webhook[] } | undefined) =>
  found?.webhooks.some((each) => each.last?.status === "queued") ?? false;

/** Asked again while a message is on its way. */
export function useWebhooks() {
  return useQuery({
    queryKey: ["webhooks"],
    queryFn: () => unwrap(api.GET("/v1/webhooks")),
    select: (found) => found.webhooks,
    refetchInterval: (query) => (waits(query.state.data) ? 2_000 : false),
  });
}

/** What was sent to a webhook, newest first. */
export function useDeliveries(webhook_id: string) {
  return useQuery({
    queryKey: ["webhooks", webhook_id, "deliveries"],
    queryFn: () => unwrap(api.GET("/v1/webhooks/{webhook_id}/deliveries", { params: { path: { webhook_id } } })),
    select: (found) => found.deliveries,
    refetchInterval: 2_000,
  });
}

export function useCreateWebhook() {
  return useRenewing(
    (body: Schemas["WebhookRequest"]) => unwrap(api.POST("/v1/webhooks", { body })),
    ["webhooks"],
    ["audit"],
  );
}

export function useDeleteWebhook() {
  return useRenewing(
    (webhook_id: string) => unwrap(api.DELETE("/v1/webhooks/{webhook_id}", { params: { path: { webhook_id } } })),
    ["webhooks"],
    ["audit"],
  );
}

export function useTestWebhook() {
  return useRenewing(
    (webhook_id: string) => unwrap(api.POST("/v1/webhooks/{webhook_id}/test", { params: { path: { webhook_id } } })),
    ["webhooks"],
  );
}

/** A wrong current password is an answer, not the end of the session. */
export function useChangePassword() {
  return useRenewing(
    (body: Schemas["PasswordChange"]) =>
      unwrap(api.POST("/v1/password", { body })).catch((error: unknown) => {
        throw error instanceof ApiError && error.status === 401 ? new Error("The current password is wrong.") : error;
      }),
    ["me"],
    ["audit"],
    ["users"],
  );
}

export function useSignOutEverywhere() {
  return useRenewing((body: Schemas["SignOut"]) => unwrap(api.POST("/v1/sign-out", { body })));
}

export function useUsers() {
  return useQuery({ queryKey: ["users"], queryFn: () => unwrap(api.GET("/v1/users")), select: (found) => found.users });
}

export function useCreateUser() {
  return useRenewing((body: Schemas["UserRequest"]) => unwrap(api.POST("/v1/users", { body })), ["users"], ["audit"]);
}

export function useDeleteUser() {
  return useRenewing(
    (user_id: string) => unwrap(api.DELETE("/v1/users/{user_id}", { params: { path: { user_id } } })),
    ["users"],
    ["audit"],
  );
}

/** Who did what, newest first, a page at a time. */
export function useAudit() {
  return useInfiniteQuery({
    queryKey: ["audit"],
    queryFn: ({ pageParam }) =>
      unwrap(api.GET("/v1/audit", { params: { query: { limit: AUDIT_PAGE, before: pageParam } } })),
    initialPageParam: undefined as number | undefined,
    getNextPageParam: (last) => (last.entries.length < AUDIT_PAGE ? undefined : last.entries.at(-1)?.id),
  });
}

/** The device that waits with this code; null asks nothing. */
export function useDevice(code: string | null) {
  return useQuery({
    queryKey: ["device", code],
    queryFn: () => unwrap(api.GET("/api/auth/device", { params: { query: { userCode: code ?? "" } } })),
    enabled: code !== null,
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
  });
}

export function useDecideDevice() {
  return useRenewing(
    (body: Schemas["DeviceApproval"]) => unwrap(api.POST("/api/auth/device/approve", { body })),
    ["audit"],
    ["keys"],
  );
}

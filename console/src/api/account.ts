// The caller's own things: keys, endpoints, secrets, users, the audit log, devices that ask to come in.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "./client";
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

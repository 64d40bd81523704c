// Calls to the server. Every error becomes an ApiError whose message says what to do; a 401 opens the sign-in page.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";
import { session } from "./session";

export type Schemas = components["schemas"];
export type RunInfo = Schemas["RunInfo"];
export type RunStatus = RunInfo["status"];
export type RunEvent = Schemas["RunEvent"];

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

/** The typed client: `unwrap(api.GET("/v1/train/runs/{run_id}", { params: { path: { run_id } } }))`. */
export const api = createClient<paths>({ baseUrl: window.location.origin });

const AWAY = "The server does not answer. It may be restarting; this page retries automatically.";

type Answer<T> = { data?: T; error?: unknown; response: Response };

/** The data of a call, or an ApiError. */
export async function unwrap<T>(call: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await call;
  } catch (error) {
    throw away(error);
  }
  session.found();
  if (!answer.response.ok) throw new ApiError(answer.response.status, problem(answer.error, answer.response.status));
  return answer.data as T;
}

/** A call by path, for bodies and answers that are not JSON objects (uploads, CSV), or routes newer than the types. */
export async function request<T>(method: string, path: string, body?: unknown, init: RequestInit = {}): Promise<T> {
  const raw = body instanceof Blob || typeof body === "string" || body instanceof ArrayBuffer;
  const headers = body === undefined || raw ? init.headers : { "Content-Type": "application/json", ...init.headers };
  let response: Response;
  try {
    const sent = raw ? (body as BodyInit) : body === undefined ? undefined : JSON.stringify(body);
    response = await fetch(path, { ...init, method, headers, body: sent });
  } catch (error) {
    throw away(error);
  }
  session.found();
  const text = await response.text();
  const isJson = response.headers.get("content-type")?.includes("json");
  const data = isJson && text ? JSON.parse(text) : text;
  if (!response.ok) throw new ApiError(response.status, problem(data, response.status));
  return data as T;
}

/** A call that found no server says so at once: a query tells its page only after its last try. */
function away(error: unknown): unknown {
  if (error instanceof DOMException && error.name === "AbortError") return error;
  session.lost();
  return new ApiError(0, AWAY);
}

export function problem(body: unknown, status: number): string {
  if (body && typeof body === "object" && "error" in body && typeof body.error === "string") return body.error;
  if (status >= 500) return "The server had an internal error. Its log has details: `benchmax logs server`";
  return `The server refused the request (${status}).`;
}

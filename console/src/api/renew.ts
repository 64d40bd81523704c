// Changing something on the server, and asking again for what shows it.
import { type QueryKey, useMutation, useQueryClient } from "@tanstack/react-query";

/** A mutation that renews these queries when it ends. */
export function useRenewing<Given, Answer>(call: (given: Given) => Promise<Answer>, ...renew: QueryKey[]) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: call,
    onSettled: () => {
      for (const queryKey of renew) client.invalidateQueries({ queryKey });
    },
  });
}

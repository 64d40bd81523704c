// Changing something on the server, and asking again for what shows it.
import { type QueryKey, useMutation, useQueryClient } from "@tanstack/react-query";

/** A mutation that renews these queries when it ends; a key may depend on what was given. */
export function useRenewing<Given, Answer>(
  call: (given: Given) => Promise<Answer>,
  ...renew: (QueryKey | ((given: Given) => QueryKey))[]
) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: call,
    onSettled: (_, __, given) => {
      for (const each of renew) {
        const queryKey = typeof each === "function" ? each(given) : each;
        // A first answer that is on its way was read before the change, and would be kept: invalidating lets it arrive.
        client.cancelQueries({ queryKey }).then(() => client.invalidateQueries({ queryKey }));
      }
    },
  });
}

import "./app/theme";
import "./app/tokens.css";
import "./app/base.css";
import "./app/shell.css";
import "./ui/ui.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { createRoot } from "react-dom/client";
import { queries } from "./api/queries";
import { router } from "./router";

createRoot(document.getElementById("root") as HTMLElement).render(
  <QueryClientProvider client={queries}>
    <RouterProvider router={router} />
  </QueryClientProvider>,
);

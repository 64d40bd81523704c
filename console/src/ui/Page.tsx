import { type ReactNode, useEffect } from "react";
import { cx } from "./format";
import { Link } from "./Link";

/** The frame of every page: where it is, its title, its actions. */
export function Page({
  title,
  name,
  crumbs,
  actions,
  children,
  wide,
}: {
  title: ReactNode;
  name?: string;
  crumbs?: { label: string; href: string }[];
  actions?: ReactNode;
  children: ReactNode;
  wide?: boolean;
}) {
  const plain = name ?? (typeof title === "string" ? title : undefined);
  useEffect(() => {
    document.title = plain ? `${plain} · benchmax` : "benchmax";
  }, [plain]);
  return (
    <div className={cx("page", wide && "page-wide")}>
      <header className="page-head">
        <div className="page-title">
          {crumbs?.map((crumb) => (
            <span key={crumb.href} className="crumb">
              <Link href={crumb.href}>{crumb.label}</Link>
              <span aria-hidden="true">/</span>
            </span>
          ))}
          <h1>{title}</h1>
        </div>
        {actions && <div className="row">{actions}</div>}
      </header>
      {children}
    </div>
  );
}

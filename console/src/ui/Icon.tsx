// Line icons, 16 × 16, drawn with currentColor.
const PATHS: Record<string, string> = {
  runs: "M2 12.5c2.6 0 3.2-2 4.2-4.2S8.800 3.500 14 3.500M2 3v11h12",
  plus: "M8 3v10M3 8h10",
  data: "M2.500 4c0-1.100 2.500-2 5.500-2s5.500.900 5.500 2-2.500 2-5.500 2-5.500-.900-5.500-2zM2.500 4v8c0 1.100 2.500 2 5.500 2s5.500-.900 5.500-2V4M2.500 8c0 1.100 2.500 2 5.500 2s5.500-.900 5.500-2",
  environment: "M8 1.800 13.500 5v6L8 14.200 2.500 11V5zM2.500 5 8 8.200 13.500 5M8 8.200v6",
  chat: "M2 3h12v8H7.500L4.500 13.700V11H2z",
  settings: "M2 4.500h7M12 4.500h2M2 11.500h2M7 11.500h7M9 2.800v3.400M4 9.800v3.400",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1.100 1.100M11.900 11.900 13 13M13 3l-1.100 1.100M4.100 11.900 3 13",
  moon: "M13.500 9.800A5.800 5.800 0 0 1 6.200 2.500a5.800 5.800 0 1 0 7.300 7.300z",
  auto: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  chevron: "m6 4 4 4-4 4",
  down: "m4 6 4 4 4-4",
  copy: "M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3",
  check: "m3 8.500 3.200 3.200L13 5",
  close: "m4 4 8 8M12 4l-8 8",
  search: "M7 2.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9zM10.400 10.400 14 14",
  pin: "M6 2h4l-.500 4.500L12 9H4l2.500-2.500zM8 9v5",
  more: "M3.500 8h.010M8 8h.010M12.500 8h.010",
  warn: "M8 2 14.500 13.500h-13zM8 6.500v3.500M8 11.800v.010",
  info: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 7.300V11M8 5v.010",
  menu: "M2 4h12M2 8h12M2 12h12",
  link: "M6.500 9.500l3-3M7 4.500 8.800 2.700a3.200 3.200 0 0 1 4.500 4.500L11.500 9M9 11.500l-1.800 1.800a3.200 3.200 0 0 1-4.500-4.500L4.500 7",
  upload: "M8 10.500V2.500M4.500 5.800 8 2.400l3.500 3.400M2.500 13.500h11",
  download: "M8 2v8M4.500 6.800 8 10.200l3.500-3.400M2.500 13.500h11",
  key: "M10.500 2.500a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8.300 7.700 2.500 13.500M4.500 11.500l2 2",
  out: "M9.500 3h-6v10h6M7 8h7M11.500 5.500 14 8l-2.500 2.500",
  stop: "M3.500 3.500h9v9h-9z",
  play: "M4.500 2.800v10.400L13 8z",
  trash: "M2.500 4h11M6 4V2.500h4V4M4 4l.600 9.500h6.800L12 4",
  archive: "M2 3h12v3H2zM3 6v7.500h10V6M6.500 8.800h3",
  external: "M6 3H3v10h10v-3M9 2.500h4.500V7M13.500 2.500 7.500 8.500",
  fork: "M4.500 5.500v5M4.500 5.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3zM4.500 13.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3zM11.500 5.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3zM11.500 5.500c0 3-7 2.500-7 5",
};

export type IconName = keyof typeof PATHS;

export function Icon({ name, className, size = 16 }: { name: string; className?: string; size?: number }) {
  return (
    <svg
      className={className ?? "icon"}
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.4"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      <path d={PATHS[name] ?? ""} />
    </svg>
  );
}

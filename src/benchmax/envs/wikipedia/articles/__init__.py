"""Where articles come from: an index on this machine (`local`) or a MediaWiki on the network (`live`), behind one port
(`base`).
"""

"""Questions answered with an encyclopedia: a local index, or a live MediaWiki.

wiki_env   the environment: start here
articles   where articles come from, and how the tools show them
factbook   the corpus that is fetched at set-up
tasks      questions with verified answers, made from its facts
"""

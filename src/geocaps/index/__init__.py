"""``geocaps.Index("shapes.lance")``: find the same or a similar object, whatever way it is turned."""

from geocaps.index.index import Index
from geocaps.index.results import AddReport, Hit, IndexInfo, SearchResult, Skipped

__all__ = ["AddReport", "Hit", "Index", "IndexInfo", "SearchResult", "Skipped"]

"""``geocaps.Index("shapes.lance")``: find the same or a similar object, whatever way it is turned."""

from geocaps.apps.index.index import Index
from geocaps.apps.index.results import AddReport, Hit, IndexInfo, SearchResult, Skipped

__all__ = ["AddReport", "Hit", "Index", "IndexInfo", "SearchResult", "Skipped"]

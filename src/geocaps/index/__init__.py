"""``geocaps.Index("shapes.lance")``: retrieval of the same or a similar object, in arbitrary orientations."""

from geocaps.errors import Skipped
from geocaps.index.adding import AddReport
from geocaps.index.index import Index, IndexInfo
from geocaps.index.rerank import Hit, SearchResult

__all__ = ["AddReport", "Hit", "Index", "IndexInfo", "SearchResult", "Skipped"]

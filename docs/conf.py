"""The documentation site: `make docs` builds it into ``site/``, without the network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from holdfast._version import __version__

project = "Holdfast"
author = "The Holdfast authors"
version = release = __version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "docstrings",
    "reference_pages",
    "references",
    "command_pages",
    "repository_files",
    "page_contents",
    "llms",
]
exclude_patterns = ["extensions"]

# A name between single backticks in a docstring is a reference, and a missing one fails the build.
default_role = "py:obj"
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", name)
    for name in (
        r"[A-Z]s?",  # type variables
        r"google\.rpc\.\w+",  # messages in errors of gRPC
        r"(aio|tls)\.\w+",  # the modules grpc.aio and ssl
        r"ASGI\w+",  # types of the ASGI specification
        # The official SDK's messages and classes, as the modules that import them call them.
        r"(sdk|pb)\.\w+|(Text|File|Data)Part|SdkContext|ProtoMessage|A2AClientError",
        r"ClientTransport|ClientCallInterceptor",
        # Those of durable engines.
        r"(temporalio|dbos)\.[\w.]+|(workflow\.)?ActivityConfig|StepOptions",
        r"(Tracer|Meter)Provider|TextMapPropagator",  # those of OpenTelemetry
        # Types in signatures of what programs receive and pass on.
        r"(holdfast\._.*\.)?(AnyOperation|AsgiExchange|Breaker|CallProgress|CardChecker|Context)",
        r"(holdfast\._.*\.)?(Entry|Exchange|Hedging|PemFiles|Progress|RetryAfterGate)",
    )
]

add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

myst_heading_anchors = 4
myst_links_external_new_tab = False

smartquotes = False
myst_enable_extensions = ["deflist"]

pygments_dark_style = "github-dark"

html_theme = "furo"
html_title = "Holdfast"
html_show_sourcelink = False
html_copy_source = False
html_permalinks_icon = "#"
html_show_copyright = False

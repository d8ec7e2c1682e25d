"""
The two dialects of deployed crews: the answers of each, and their description.

``documented`` follows the API reference of the crew; ``deployed`` follows the deployments.
"""

from collections.abc import Mapping
from types import MappingProxyType

from airflow_provider_crew.local.dialects.deployed import DEPLOYED
from airflow_provider_crew.local.dialects.dialect import Dialect
from airflow_provider_crew.local.dialects.documented import DOCUMENTED
from airflow_provider_crew.local.scenario import DialectName

DIALECTS: Mapping[DialectName, Dialect] = MappingProxyType({"documented": DOCUMENTED, "deployed": DEPLOYED})

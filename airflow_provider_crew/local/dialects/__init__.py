"""
The two ways in which deployed crews talk: what each answers, and how it describes that.

``documented`` is what the reference of the service says; ``deployed`` is what its deployments say.
"""

from collections.abc import Mapping
from types import MappingProxyType

from airflow_provider_crew.local.dialects.deployed import DEPLOYED
from airflow_provider_crew.local.dialects.dialect import Dialect
from airflow_provider_crew.local.dialects.documented import DOCUMENTED
from airflow_provider_crew.local.scenario import DialectName

DIALECTS: Mapping[DialectName, Dialect] = MappingProxyType({"documented": DOCUMENTED, "deployed": DEPLOYED})

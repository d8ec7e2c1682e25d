"""The crew's REST API: no Airflow in here."""

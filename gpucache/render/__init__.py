"""Outcomes to text: tables for people, one JSON document for machines, progress on stderr. Decides nothing."""

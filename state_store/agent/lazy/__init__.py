"""Lazy restores: files of one base that are fetched while they are read (`hydration`), those of a store
(`hydrations`), and what all of an executor may take (`budget`).
"""

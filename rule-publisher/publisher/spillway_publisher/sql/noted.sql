-- The newest version that every connected Envoy is known to have had in force; 0 without any.
SELECT max(version) FROM transitions WHERE state = 'acknowledged'

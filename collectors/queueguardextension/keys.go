package queueguardextension

// Key is a key of the configuration: a row of the table in collectors/AGENT.md.
type Key struct{ Name, Meaning string }

// Keys returns all keys. The table in collectors/AGENT.md is generated from them, with the defaults
// of the factory.
func Keys() []Key {
	return []Key{{"directory", "folder of `file_storage`"}}
}

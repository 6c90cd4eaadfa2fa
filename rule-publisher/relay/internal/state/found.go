package state

import "bytes"

// foundKind is the kind of the file with the endpoints that sources found. Its payload is encoded
// by the caller.
const foundKind = "endpoints"

// SaveFound replaces what LoadFound returns.
func (s *Store) SaveFound(payload []byte) error { return s.write(foundKind, payload) }

// LoadFound returns the payload saved last, or nil when there is none. It has the same errors as
// Load.
func (s *Store) LoadFound() (payload []byte, err error) {
	err = s.read(foundKind, func(content []byte) error {
		payload = bytes.Clone(content)
		return nil
	})
	return payload, err
}

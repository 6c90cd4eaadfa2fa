package state

import "bytes"

// foundKind: endpoints that sources found, in their keeper's own encoding.
const foundKind = "endpoints"

// SaveFound replaces what LoadFound gives.
func (s *Store) SaveFound(payload []byte) error { return s.write(foundKind, payload) }

// LoadFound gives what was last saved; nil when there is none. Errors as of Load.
func (s *Store) LoadFound() (payload []byte, err error) {
	_, err = s.read(foundKind, func(content []byte) error {
		payload = bytes.Clone(content)
		return nil
	})
	return payload, err
}

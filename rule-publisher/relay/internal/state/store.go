// Package state keeps on disk what a relay must not lose across a restart while NATS is away: the
// last good ruleset, and the acknowledgements that are not stored yet.
package state

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protodelim"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/signing"
)

// Kinds of files. The file of a kind is <kind>.state in the folder.
const (
	rulesetKind = "signed-ruleset"
	acksKind    = "acknowledgements"
)

// Store is a folder that only one relay writes to.
type Store struct{ folder, cluster string }

// Open creates the folder when it is missing, and removes temporary files that a crash left behind.
func Open(folder, cluster string) (*Store, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	half, err := filepath.Glob(filepath.Join(folder, "*.tmp"))
	for _, path := range half {
		err = errors.Join(err, os.Remove(path))
	}
	return &Store{folder, cluster}, err
}

// Save replaces the ruleset atomically: after a crash at any instant, the file holds either the
// whole old ruleset or the whole new one.
func (s *Store) Save(value signing.Value) error {
	return s.write(rulesetKind, bytes.Join([][]byte{[]byte(value.KeyID), []byte(value.Signature), value.Payload}, []byte("\n")))
}

// Load returns the ruleset as it was signed, not verified, or nil when there is none. A file that
// cannot be used is moved aside and reported as an error; the relay then runs without it.
func (s *Store) Load() (value *signing.Value, err error) {
	err = s.read(rulesetKind, func(content []byte) error {
		parts := bytes.SplitN(content, []byte("\n"), 3)
		if len(parts) != 3 {
			return errors.New("it lacks a key id, a signature or a ruleset")
		}
		value = &signing.Value{KeyID: string(parts[0]), Signature: string(parts[1]), Payload: bytes.Clone(parts[2])}
		return nil
	})
	return value, err
}

// SaveAcks replaces the acknowledgements. An empty list removes the file.
func (s *Store) SaveAcks(acks []*spillwayv1.Acknowledgement) error {
	if len(acks) == 0 {
		if err := os.Remove(s.path(acksKind)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	var payload bytes.Buffer
	for _, ack := range acks {
		if _, err := protodelim.MarshalTo(&payload, ack); err != nil {
			return err
		}
	}
	return s.write(acksKind, payload.Bytes())
}

// LoadAcks returns the acknowledgements, oldest first. It has the same errors as Load.
func (s *Store) LoadAcks() (acks []*spillwayv1.Acknowledgement, err error) {
	err = s.read(acksKind, func(payload []byte) error {
		reader := bytes.NewReader(payload)
		for {
			ack := &spillwayv1.Acknowledgement{}
			switch err := protodelim.UnmarshalFrom(reader, ack); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			}
			acks = append(acks, ack)
		}
	})
	return acks, err
}

func (s *Store) path(kind string) string { return filepath.Join(s.folder, kind+".state") }

// read passes the payload of the kind's file to `decode`. A file that cannot be used is renamed to
// *.unusable.
func (s *Store) read(kind string, decode func([]byte) error) error {
	path := s.path(kind)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	payload, err := unframe(kind, s.cluster, content)
	if err == nil {
		err = decode(payload)
	}
	if err != nil {
		aside := path + ".unusable"
		return errors.Join(fmt.Errorf("%s: %w; moved to %s", path, err, aside), os.Rename(path, aside))
	}
	return nil
}

func (s *Store) write(kind string, payload []byte) error {
	file, err := os.CreateTemp(s.folder, kind+"-*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // has no effect after the rename
	_, err = file.Write(frame(kind, s.cluster, payload))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), s.path(kind)); err != nil {
		return err
	}
	return syncFolder(s.folder)
}

// syncFolder makes the rename itself durable.
func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

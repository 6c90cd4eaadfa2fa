package state

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
)

// A file is a header line "SPILLWAY-STATE <format> <kind> <cluster>\n", then the SHA-256 of header
// and payload, then the payload.
const (
	magic  = "SPILLWAY-STATE "
	format = "2"
)

// frame returns the content of a file with the payload.
func frame(kind, cluster string, payload []byte) []byte {
	header := []byte(magic + format + " " + kind + " " + cluster + "\n")
	sum := sha256.Sum256(append(bytes.Clone(header), payload...))
	return bytes.Join([][]byte{header, sum[:], payload}, nil)
}

// unframe returns the payload of a file of the given kind and cluster. The error says why the
// content is not such a file.
func unframe(kind, cluster string, content []byte) ([]byte, error) {
	line, rest, found := bytes.Cut(content, []byte("\n"))
	text, ours := strings.CutPrefix(string(line), magic)
	fields := strings.Split(text, " ")
	if !found || !ours || len(fields) == 0 {
		return nil, errors.New("not a state file")
	}
	if fields[0] != format { // the rest of an unknown format cannot be interpreted
		return nil, fmt.Errorf("format %q; this relay reads format %s", fields[0], format)
	}
	if len(rest) < sha256.Size {
		return nil, errors.New("cut off")
	}
	payload := rest[sha256.Size:]
	sum := sha256.Sum256(bytes.Join([][]byte{line, payload}, []byte("\n")))
	if !bytes.Equal(sum[:], rest[:sha256.Size]) {
		return nil, errors.New("the checksum does not match")
	}
	if len(fields) != 3 || fields[1] != kind || fields[2] != cluster {
		return nil, fmt.Errorf("it is %q; must be %q", strings.Join(fields[1:], " "), kind+" "+cluster)
	}
	return payload, nil
}

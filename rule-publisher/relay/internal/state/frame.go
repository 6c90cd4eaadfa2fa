package state

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
)

// A file is a header line "SPILLWAY-STATE <format> <kind> <cluster>\n", the SHA-256 of header and
// payload, and the payload.
const (
	magic  = "SPILLWAY-STATE "
	format = "2"
)

func frame(kind, cluster string, payload []byte) []byte {
	header := []byte(magic + format + " " + kind + " " + cluster + "\n")
	sum := sha256.Sum256(append(bytes.Clone(header), payload...))
	return bytes.Join([][]byte{header, sum[:], payload}, nil)
}

// unframe gives the payload of a file of the kind and cluster; the error says why it is none.
func unframe(kind, cluster string, content []byte) ([]byte, error) {
	line, rest, found := bytes.Cut(content, []byte("\n"))
	text, ours := strings.CutPrefix(string(line), magic)
	fields := strings.Split(text, " ")
	if !found || !ours || len(fields) == 0 {
		return nil, errors.New("not a state file")
	}
	if fields[0] != format { // of another format nothing else is known
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

package table

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
)

// Name is a DNS name that stands for endpoints.
type Name struct {
	Text string // as declared
	Host string
	Port uint16 // 0: Host is looked up as SRV, whose records contain the ports
}

// hostName matches labels of letters, digits, '-' and '_' (for SRV names). The dot at the end that
// makes a name absolute is optional.
var hostName = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.?$`)

// ParseName reads name:port, or _service._proto.name, which is looked up as SRV. The text may have
// at most 260 bytes.
func ParseName(text string) (Name, error) {
	wrong := fmt.Errorf("%q must be name:port, or _service._proto.name to look up as SRV", text)
	if len(text) > 260 {
		return Name{}, wrong
	}
	if text != "" && text[0] == '_' {
		if !hostName.MatchString(text) {
			return Name{}, wrong
		}
		return Name{Text: text, Host: text}, nil
	}
	host, port, err := net.SplitHostPort(text)
	number, err2 := strconv.ParseUint(port, 10, 16)
	if err != nil || err2 != nil || number == 0 || !hostName.MatchString(host) || net.ParseIP(host) != nil {
		return Name{}, wrong
	}
	return Name{Text: text, Host: host, Port: uint16(number)}, nil
}

// validPort reports whether the text is a port number or can be the name of a port.
func validPort(text string) bool {
	if number, err := strconv.ParseUint(text, 10, 16); err == nil {
		return number > 0
	}
	return portName.MatchString(text)
}

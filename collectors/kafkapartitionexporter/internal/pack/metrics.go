package pack

import "google.golang.org/protobuf/encoding/protowire"

// Fields of Metric that hold data points: gauge, sum, histogram, exponential histogram, summary. In
// each of them field 1 is the points; the other fields define how to read them.
const (
	fieldGauge                = 5
	fieldSum                  = 7
	fieldHistogram            = 9
	fieldExponentialHistogram = 10
	fieldSummary              = 11
	fieldPoints               = 1
)

// Fields on the way from a resource to the text of an attribute.
const (
	fieldAttributes  = 1 // Resource
	fieldKey         = 1 // KeyValue
	fieldValue       = 2
	fieldStringValue = 1 // AnyValue
)

const serviceName = "service.name"

// Metrics keeps the metrics of every service in one partition, and in order there. A data point is
// never cut.
var Metrics = Signal{
	key:   func(resource, _ []byte) ([]byte, error) { return service(resource) },
	count: countPoints,
	cut:   cutMetric,
}

// service returns service.name from the resource's attributes, or nil when the resource has none.
func service(head []byte) ([]byte, error) {
	resource, err := first(head, fieldResource)
	if err != nil {
		return nil, err
	}
	attributes, _, err := part(resource, fieldAttributes)
	if err != nil {
		return nil, err
	}
	for _, attribute := range attributes {
		key, err := first(attribute.content, fieldKey)
		if err != nil {
			return nil, err
		}
		if string(key) != serviceName {
			continue
		}
		value, err := first(attribute.content, fieldValue)
		if err != nil {
			return nil, err
		}
		return first(value, fieldStringValue)
	}
	return nil, nil
}

// data returns the field of a metric that holds its points, and the bytes of all its other fields.
func data(metric []byte) (field, []byte, error) {
	var found field
	var rest []byte
	for len(metric) > 0 {
		part, after, err := next(metric)
		if err != nil {
			return field{}, nil, err
		}
		switch part.number {
		case fieldGauge, fieldSum, fieldHistogram, fieldExponentialHistogram, fieldSummary:
			found = part
		default:
			rest = append(rest, part.raw...)
		}
		metric = after
	}
	return found, rest, nil
}

func countPoints(metric []byte) (int, error) {
	found, _, err := data(metric)
	if err != nil {
		return 0, err
	}
	points, _, err := part(found.content, fieldPoints)
	return len(points), err
}

// shape is a metric without its points: name and unit, the kind of points, and how to read them.
type shape struct {
	head, how []byte
	kind      protowire.Number
}

// with returns a metric of this shape with the encoded points, as a field of its scope.
func (s shape) with(points []byte, count int) piece {
	content := append(append(make([]byte, 0, len(points)+len(s.how)), points...), s.how...)
	metric := appendBytes(append([]byte(nil), s.head...), s.kind, content)
	return piece{appendBytes(nil, fieldItems, metric), count}
}

// cutMetric cuts a metric into parts, each of which repeats name, unit and temporality.
func cutMetric(metric field, room Limits) (parts []piece, lost int, err error) {
	found, head, err := data(metric.content)
	if err != nil {
		return nil, 0, err
	}
	points, how, err := part(found.content, fieldPoints)
	if err != nil {
		return nil, 0, err
	}
	if len(points) <= 1 && len(metric.raw) <= room.Hard {
		return []piece{{metric.raw, len(points)}}, 0, nil
	}
	parts, lost = shape{head, how, found.number}.cut(points, room)
	return parts, lost, nil
}

func (s shape) cut(points []field, room Limits) (parts []piece, lost int) {
	target := min(room.Target, room.Hard) - nesting - len(s.head) - len(s.how)
	var chunk []byte
	count := 0
	flush := func() {
		if part := s.with(chunk, count); count == 1 && len(part.raw) > room.Hard {
			lost++
		} else if count > 0 {
			parts = append(parts, part)
		}
		chunk, count = nil, 0
	}
	for _, point := range points {
		if len(chunk)+len(point.raw) > target {
			flush()
		}
		chunk = append(chunk, point.raw...)
		count++
	}
	flush()
	return parts, lost
}

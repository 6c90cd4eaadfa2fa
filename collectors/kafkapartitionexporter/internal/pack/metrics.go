package pack

import "google.golang.org/protobuf/encoding/protowire"

// Fields of Metric that hold data points: gauge, sum, histogram, exponential histogram, summary. In each of them
// field 1 is the points, the others say how to read them.
const (
	fieldGauge                = 5
	fieldSum                  = 7
	fieldHistogram            = 9
	fieldExponentialHistogram = 10
	fieldSummary              = 11
	fieldPoints               = 1
)

// Fields on the way from a resource to an attribute's text.
const (
	fieldAttributes  = 1 // Resource
	fieldKey         = 1 // KeyValue
	fieldValue       = 2
	fieldStringValue = 1 // AnyValue
)

const serviceName = "service.name"

// Metrics keeps the metrics of every service in one partition, and in order there. A data point is never cut.
var Metrics = Signal{
	key:   func(resource, _ []byte) ([]byte, error) { return service(resource) },
	count: countPoints,
	cut:   cutMetric,
}

// service finds service.name among the resource's attributes; nil when it has none.
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

// data finds the field of a metric that holds its points, and gives all its other fields.
func data(metric []byte) (field, []byte, error) {
	var found field
	var rest []byte
	for len(metric) > 0 {
		one, after, err := next(metric)
		if err != nil {
			return field{}, nil, err
		}
		switch one.number {
		case fieldGauge, fieldSum, fieldHistogram, fieldExponentialHistogram, fieldSummary:
			found = one
		default:
			rest = append(rest, one.raw...)
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

// cutMetric repeats name, unit and temporality in every part.
func cutMetric(metric []byte, room int) (parts []piece, lost int, err error) {
	found, head, err := data(metric)
	if err != nil {
		return nil, 0, err
	}
	points, how, err := part(found.content, fieldPoints)
	if err != nil {
		return nil, 0, err
	}
	room -= nesting + len(head) + len(how)
	var chunk []byte
	count := 0
	flush := func() {
		if count > 0 {
			parts = append(parts, metricPart(head, found.number, how, chunk, count))
		}
		chunk, count = nil, 0
	}
	for _, point := range points {
		if len(point.raw) > room {
			lost++
			continue
		}
		if len(chunk)+len(point.raw) > room {
			flush()
		}
		chunk = append(chunk, point.raw...)
		count++
	}
	flush()
	return parts, lost, nil
}

func metricPart(head []byte, kind protowire.Number, how, points []byte, count int) piece {
	content := append(append(make([]byte, 0, len(points)+len(how)), points...), how...)
	metric := appendBytes(append([]byte(nil), head...), kind, content)
	return piece{appendBytes(nil, fieldItems, metric), count}
}

package pack

import "google.golang.org/protobuf/encoding/protowire"

// packer collects items by partition. Items of equal resource and scope share one entry of a
// message, whichever requests they came in. This matters because a batch is merged from many small
// requests of a few senders.
type packer struct {
	limits Limits
	heads  []head
	order  map[string]int // encoded head to its position in `heads`
	open   []message      // by partition
	packed Packed
}

// head is what a message repeats for a group of items: the fields of resource and scope without
// their children.
type head struct{ resource, scope []byte }

// message is a message under construction.
type message struct {
	first  int // position in Packed.Messages, reserved when the message is opened; meaningless while it is empty
	size   int // upper bound of its encoded size
	items  int
	groups []group
	at     map[int]int // position in `heads` to position in `groups`
}

type group struct {
	head   int
	pieces [][]byte
	bytes  int
}

// nesting is the size of two nested length prefixes with their tags. A length below 4 GiB needs at
// most 5 bytes.
const nesting = 2 * (1 + 5)

// group returns the position in `heads` of the resource and scope. It adds them when they are new.
func (p *packer) group(resource, scope []byte) int {
	key := string(protowire.AppendBytes(protowire.AppendBytes(nil, resource), scope))
	position, known := p.order[key]
	if !known {
		position = len(p.heads)
		p.order[key] = position
		p.heads = append(p.heads, head{resource, scope})
	}
	return position
}

// overhead returns the bytes that a group adds to a message beside its pieces.
func (p *packer) overhead(group int) int {
	return len(p.heads[group].resource) + len(p.heads[group].scope) + nesting
}

// room returns what an otherwise empty message leaves for a piece of the group.
func (p *packer) room(group int) Limits {
	overhead := p.overhead(group)
	return Limits{Target: p.limits.Target - overhead, Hard: p.limits.Hard - overhead}
}

// add puts a piece into the partition's open message or, when it does not fit there, into a new
// one. The piece must fit into a message of its own.
func (p *packer) add(partition, head int, piece piece) {
	open := &p.open[partition]
	position, known := open.at[head]
	cost := len(piece.raw)
	if !known {
		cost += p.overhead(head)
	}
	if open.at != nil && open.size+cost > p.limits.Target {
		p.close(partition)
		p.packed.Splits++
		known, cost = false, len(piece.raw)+p.overhead(head)
	}
	if open.at == nil {
		*open = message{first: len(p.packed.Messages), at: make(map[int]int)}
		p.packed.Messages = append(p.packed.Messages, Message{Partition: int32(partition)})
	}
	if !known {
		position = len(open.groups)
		open.at[head] = position
		open.groups = append(open.groups, group{head: head})
	}
	to := &open.groups[position]
	to.pieces = append(to.pieces, piece.raw)
	to.bytes += len(piece.raw)
	open.size += cost
	open.items += piece.count
}

// close encodes the partition's open message.
func (p *packer) close(partition int) {
	open := &p.open[partition]
	value := make([]byte, 0, open.size)
	for _, group := range open.groups {
		head := p.heads[group.head]
		scope := len(head.scope) + group.bytes
		resource := len(head.resource) + protowire.SizeTag(fieldScopes) + protowire.SizeBytes(scope)
		value = protowire.AppendTag(value, fieldResources, protowire.BytesType)
		value = protowire.AppendVarint(value, uint64(resource))
		value = append(value, head.resource...)
		value = protowire.AppendTag(value, fieldScopes, protowire.BytesType)
		value = protowire.AppendVarint(value, uint64(scope))
		value = append(value, head.scope...)
		for _, piece := range group.pieces {
			value = append(value, piece...)
		}
	}
	done := &p.packed.Messages[open.first]
	done.Value, done.Items = value, open.items
	*open = message{}
}

func (p *packer) finish() Packed {
	for partition := range p.open {
		if p.open[partition].at != nil {
			p.close(partition)
		}
	}
	return p.packed
}

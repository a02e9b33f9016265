// Package wire encodes the messages of CSI, and calls drivers with them. Begin reading at Message.
package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of CSI's node service that podrun sends and receives are encoded here, by the field numbers of the
// specification (https://github.com/container-storage-interface/spec, csi.proto). Its generated Go package has all
// messages of all services, registers them whenever the program starts, and so would cost each shim some 170 KiB and
// the binary 1 MB. The tests compare what is encoded here with it.

// Message is an encoded message. Its methods append a field; a string, map or number that is empty is left out, as the
// encoding demands.
type Message []byte

// Text appends a string.
func (m Message) Text(n protowire.Number, s string) Message {
	if s == "" {
		return m
	}
	return protowire.AppendString(protowire.AppendTag(m, n, protowire.BytesType), s)
}

// Number appends a number.
func (m Message) Number(n protowire.Number, v uint64) Message {
	if v == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, n, protowire.VarintType), v)
}

// Within appends a message, which may be empty.
func (m Message) Within(n protowire.Number, inner Message) Message {
	return protowire.AppendBytes(protowire.AppendTag(m, n, protowire.BytesType), inner)
}

// Pairs appends a map.
func (m Message) Pairs(n protowire.Number, of map[string]string) Message {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		m = m.Within(n, Message(nil).Text(1, key).Text(2, of[key]))
	}
	return m
}

// Each calls f with the fields that are numbers, whose bytes are nil, or have bytes. An error is that the message is
// malformed.
func (m Message) Each(f func(n protowire.Number, number uint64, bytes Message)) error {
	for len(m) > 0 {
		n, t, size := protowire.ConsumeTag(m)
		if size < 0 {
			return protowire.ParseError(size)
		}
		m = m[size:]
		var number uint64
		var bytes []byte
		switch t {
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(m)
		case protowire.BytesType:
			bytes, size = protowire.ConsumeBytes(m)
		default:
			size = protowire.ConsumeFieldValue(n, t, m)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		m = m[size:]
		f(n, number, bytes)
	}
	return nil
}

// codec passes encoded messages through.
type codec struct{}

// Name implements encoding.Codec: it is that of the encoding.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (codec) Marshal(v any) ([]byte, error) {
	m, is := v.(Message)
	if !is {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return m, nil
}

// Unmarshal implements encoding.Codec.
func (codec) Unmarshal(text []byte, v any) error {
	m, is := v.(*Message)
	if !is {
		return fmt.Errorf("%T is no message", v)
	}
	*m = slices.Clone(text)
	return nil
}

// Invoke calls a driver's node service, or another one that the call names.
func Invoke(
	ctx context.Context, conn grpc.ClientConnInterface, call string, m Message, o ...grpc.CallOption,
) (Message, error) {
	if !strings.Contains(call, "/") {
		call = "Node/" + call
	}
	var answer Message
	err := conn.Invoke(ctx, "/csi.v1."+call, m, &answer, append(o, grpc.ForceCodec(codec{}))...)
	return answer, err
}

// Capability is a NodeServiceCapability.RPC.Type.
type Capability uint64

const (
	StageUnstage          Capability = 1
	SingleNodeMultiWriter Capability = 5
	VolumeMountGroup      Capability = 6
)

// What a driver's other services say that they have, in answers of the same form: a PluginCapability.Service.Type, and
// a ControllerServiceCapability.RPC.Type.
const (
	ControllerService      Capability = 1
	PublishUnpublishVolume Capability = 2
)

// AccessMode is a VolumeCapability.AccessMode.Mode.
type AccessMode uint64

const (
	ModeSingleNodeWriter       AccessMode = 1
	ModeMultiNodeReaderOnly    AccessMode = 3
	ModeMultiNodeMultiWriter   AccessMode = 5
	ModeSingleNodeSingleWriter AccessMode = 6
	ModeSingleNodeMultiWriter  AccessMode = 7
)

// Capabilities reads a NodeGetCapabilitiesResponse, a GetPluginCapabilitiesResponse or a
// ControllerGetCapabilitiesResponse.
func (m Message) Capabilities() (map[Capability]bool, error) {
	all := map[Capability]bool{}
	var errs []error
	read := func(m Message, f func(n protowire.Number, number uint64, bytes Message)) {
		errs = append(errs, m.Each(f))
	}
	read(m, func(n protowire.Number, _ uint64, one Message) {
		if n != 1 {
			return
		}
		read(one, func(n protowire.Number, _ uint64, rpc Message) {
			if n != 1 {
				return
			}
			read(rpc, func(n protowire.Number, t uint64, _ Message) {
				if n == 1 {
					all[Capability(t)] = true
				}
			})
		})
	})
	return all, errors.Join(errs...)
}

// NodeID reads a NodeGetInfoResponse.
func (m Message) NodeID() (id string, err error) {
	err = m.Each(func(n protowire.Number, _ uint64, text Message) {
		if n == 1 && text != nil {
			id = string(text)
		}
	})
	return id, err
}

// Publication is a NodePublishVolumeRequest or, as far as that has it, a NodeStageVolumeRequest.
type Publication struct {
	ID, Staging, Target, FSType, Group string
	Flags                              []string
	Mode                               AccessMode
	ReadOnly, Block                    bool
	Secrets, Context                   map[string]string
}

// Capability returns the VolumeCapability.
func (p Publication) Capability() Message {
	mode := Message(nil).Number(1, uint64(p.Mode))
	if p.Block {
		return Message(nil).Within(1, nil).Within(3, mode)
	}
	mount := Message(nil).Text(1, p.FSType)
	for _, flag := range p.Flags {
		mount = mount.Within(2, Message(flag))
	}
	return Message(nil).Within(2, mount.Text(3, p.Group)).Within(3, mode)
}

// EncodeStage returns the NodeStageVolumeRequest.
func (p Publication) EncodeStage() Message {
	return Message(nil).Text(1, p.ID).Text(3, p.Staging).Within(4, p.Capability()).
		Pairs(5, p.Secrets).Pairs(6, p.Context)
}

// Encode returns the NodePublishVolumeRequest.
func (p Publication) Encode() Message {
	var readOnly uint64
	if p.ReadOnly {
		readOnly = 1
	}
	return Message(nil).Text(1, p.ID).Text(3, p.Staging).Text(4, p.Target).Within(5, p.Capability()).
		Number(6, readOnly).Pairs(7, p.Secrets).Pairs(8, p.Context)
}

// Unpublication encodes a NodeUnpublishVolumeRequest or, with where it is staged, a NodeUnstageVolumeRequest.
func Unpublication(id, target string) Message { return Message(nil).Text(1, id).Text(2, target) }

// Volume is the volume of a CreateVolumeResponse.
type Volume struct {
	Handle  string
	Context map[string]string
	Size    int64 // in bytes; 0: the driver does not say
}

// Volume reads a CreateVolumeResponse.
func (m Message) Volume() (made Volume, err error) {
	var errs []error
	errs = append(errs, m.Each(func(n protowire.Number, _ uint64, volume Message) {
		if n != 1 {
			return
		}
		made.Context = map[string]string{}
		errs = append(errs, volume.Each(func(n protowire.Number, number uint64, bytes Message) {
			switch n {
			case 1:
				made.Size = int64(number)
			case 2:
				made.Handle = string(bytes)
			case 3:
				var key, value string
				errs = append(errs, bytes.Each(func(n protowire.Number, _ uint64, text Message) {
					switch n {
					case 1:
						key = string(text)
					case 2:
						value = string(text)
					}
				}))
				made.Context[key] = value
			}
		}))
	}))
	if err := errors.Join(errs...); err != nil {
		return Volume{}, err
	}
	if made.Handle == "" {
		return Volume{}, errors.New("the driver's answer names no volume")
	}
	return made, nil
}

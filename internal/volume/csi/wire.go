package csi

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

// message is an encoded message. Its methods append a field; a string, map or number that is empty is left out, as the
// encoding demands.
type message []byte

func (m message) text(n protowire.Number, s string) message {
	if s == "" {
		return m
	}
	return protowire.AppendString(protowire.AppendTag(m, n, protowire.BytesType), s)
}

func (m message) number(n protowire.Number, v uint64) message {
	if v == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, n, protowire.VarintType), v)
}

// within appends a message, which may be empty.
func (m message) within(n protowire.Number, inner message) message {
	return protowire.AppendBytes(protowire.AppendTag(m, n, protowire.BytesType), inner)
}

func (m message) pairs(n protowire.Number, of map[string]string) message {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		m = m.within(n, message(nil).text(1, key).text(2, of[key]))
	}
	return m
}

// each calls f with the fields that are numbers, whose bytes are nil, or have bytes. An error is that the message is
// malformed.
func (m message) each(f func(n protowire.Number, number uint64, bytes message)) error {
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
	m, is := v.(message)
	if !is {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return m, nil
}

// Unmarshal implements encoding.Codec.
func (codec) Unmarshal(text []byte, v any) error {
	m, is := v.(*message)
	if !is {
		return fmt.Errorf("%T is no message", v)
	}
	*m = slices.Clone(text)
	return nil
}

// invoke calls a driver's node service, or another one that the call names.
func invoke(ctx context.Context, conn *grpc.ClientConn, call string, m message, o ...grpc.CallOption) (message, error) {
	if !strings.Contains(call, "/") {
		call = "Node/" + call
	}
	var answer message
	err := conn.Invoke(ctx, "/csi.v1."+call, m, &answer, append(o, grpc.ForceCodec(codec{}))...)
	return answer, err
}

// capability is a NodeServiceCapability.RPC.Type.
type capability uint64

const (
	stageUnstage          capability = 1
	singleNodeMultiWriter capability = 5
	volumeMountGroup      capability = 6
)

// What a driver's other services say that they have, in answers of the same form: a PluginCapability.Service.Type, and
// a ControllerServiceCapability.RPC.Type.
const (
	controllerService      capability = 1
	publishUnpublishVolume capability = 2
)

// accessMode is a VolumeCapability.AccessMode.Mode.
type accessMode uint64

const (
	modeSingleNodeWriter       accessMode = 1
	modeMultiNodeReaderOnly    accessMode = 3
	modeMultiNodeMultiWriter   accessMode = 5
	modeSingleNodeSingleWriter accessMode = 6
	modeSingleNodeMultiWriter  accessMode = 7
)

// capabilities reads a NodeGetCapabilitiesResponse, a GetPluginCapabilitiesResponse or a
// ControllerGetCapabilitiesResponse.
func (m message) capabilities() (map[capability]bool, error) {
	all := map[capability]bool{}
	var errs []error
	read := func(m message, f func(n protowire.Number, number uint64, bytes message)) {
		errs = append(errs, m.each(f))
	}
	read(m, func(n protowire.Number, _ uint64, one message) {
		if n != 1 {
			return
		}
		read(one, func(n protowire.Number, _ uint64, rpc message) {
			if n != 1 {
				return
			}
			read(rpc, func(n protowire.Number, t uint64, _ message) {
				if n == 1 {
					all[capability(t)] = true
				}
			})
		})
	})
	return all, errors.Join(errs...)
}

// nodeID reads a NodeGetInfoResponse.
func (m message) nodeID() (id string, err error) {
	err = m.each(func(n protowire.Number, _ uint64, text message) {
		if n == 1 && text != nil {
			id = string(text)
		}
	})
	return id, err
}

// publication is a NodePublishVolumeRequest or, as far as that has it, a NodeStageVolumeRequest.
type publication struct {
	id, staging, target, fsType, group string
	flags                              []string
	mode                               accessMode
	readOnly, block                    bool
	secrets, context                   map[string]string
}

// capability returns the VolumeCapability.
func (p publication) capability() message {
	mode := message(nil).number(1, uint64(p.mode))
	if p.block {
		return message(nil).within(1, nil).within(3, mode)
	}
	mount := message(nil).text(1, p.fsType)
	for _, flag := range p.flags {
		mount = mount.within(2, message(flag))
	}
	return message(nil).within(2, mount.text(3, p.group)).within(3, mode)
}

func (p publication) encodeStage() message {
	return message(nil).text(1, p.id).text(3, p.staging).within(4, p.capability()).
		pairs(5, p.secrets).pairs(6, p.context)
}

func (p publication) encode() message {
	var readOnly uint64
	if p.readOnly {
		readOnly = 1
	}
	return message(nil).text(1, p.id).text(3, p.staging).text(4, p.target).within(5, p.capability()).
		number(6, readOnly).pairs(7, p.secrets).pairs(8, p.context)
}

// unpublication encodes a NodeUnpublishVolumeRequest or, with where it is staged, a NodeUnstageVolumeRequest.
func unpublication(id, target string) message { return message(nil).text(1, id).text(2, target) }

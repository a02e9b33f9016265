# podrun and runc, for machines and CI jobs that have neither:
#
#   docker build -t podrun .
#   docker run --rm --privileged -v "$PWD/pods:/etc/pods:ro" podrun once
#
# Privileged, because podrun creates namespaces, mounts and cgroups in it.
ARG BASE=debian:bookworm-slim
ARG GO=golang:1.26-bookworm
# The stage that the binary and its SBOM come from: source builds them, prebuilt takes those of `make image`.
ARG BINARY=source

FROM ${GO} AS source
WORKDIR /src
COPY go.mod go.sum ./
COPY packaging/sbom packaging/sbom
RUN go mod download && go -C packaging/sbom mod download
COPY . .
RUN make sbom && mkdir /out && cp bin/podrun bin/podrun.cdx.json /out/

FROM scratch AS prebuilt
COPY bin/podrun bin/podrun.cdx.json /out/

FROM ${BINARY} AS binary

FROM ${BASE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates runc \
 && rm -rf /var/lib/apt/lists/*
COPY --from=binary /out/podrun /usr/local/bin/podrun
COPY --from=binary /out/podrun.cdx.json /usr/share/doc/podrun/podrun.cdx.json
# Snapshots are overlay mounts, and those cannot lie on the container's own overlay.
VOLUME /var/lib/podrun
ENTRYPOINT ["podrun"]
CMD ["serve"]

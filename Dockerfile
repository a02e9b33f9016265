# podrun and runc, for machines and CI jobs that have neither:
#
#   docker run --rm --privileged -v "$PWD/pods:/etc/pods:ro" podrun once
#
# Privileged, because podrun makes namespaces, mounts and cgroups in it. `make image` builds it.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates runc \
 && rm -rf /var/lib/apt/lists/*
COPY bin/podrun /usr/local/bin/podrun
COPY bin/podrun.cdx.json /usr/share/doc/podrun/podrun.cdx.json
# Snapshots are overlay mounts, and those cannot lie on the container's own overlay.
VOLUME /var/lib/podrun
ENTRYPOINT ["podrun"]
CMD ["serve"]

# syntax=docker/dockerfile:1
# A broker for Kafka clients: docker build -t duralog . && docker run -p 9092:9092 -v duralog:/var/lib/duralog duralog
# The kernels are compiled while the image is built, so that no container has to. If their machine code cannot become part
# of the package, numba compiles them for the oldest CPU that numpy's wheels run on, so that every machine can use them.
# For newer CPUs then: --build-arg KERNEL_CPU=x86-64-v3.

ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS cpu-amd64
ARG KERNEL_CPU=x86-64-v2
ENV NUMBA_CPU_NAME=${KERNEL_CPU} NUMBA_CPU_FEATURES=+sse4.2,+crc32

FROM python:${PYTHON}-slim AS cpu-arm64
ENV NUMBA_CPU_NAME=generic

FROM cpu-${TARGETARCH} AS build
# A C compiler for the kernels' machine code, which then needs no numba in the image.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
RUN python -m venv /opt/duralog
WORKDIR /src
COPY requirements.txt pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY packaging/build_backend.py packaging/build_hook.py packaging/metadata_hook.py packaging/
COPY src src
RUN /opt/duralog/bin/pip install --no-cache-dir --disable-pip-version-check -c requirements.txt ".[broker,kafka,security]"

FROM cpu-${TARGETARCH}
LABEL org.opencontainers.image.title="duralog" org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 duralog \
    && useradd --system --uid 10001 --gid duralog --home-dir /var/lib/duralog --shell /usr/sbin/nologin duralog \
    && install -d -o duralog -g duralog -m 0750 /var/lib/duralog \
    && install -d -o duralog -g duralog -m 0700 /var/cache/duralog
COPY --from=build /opt/duralog /opt/duralog
ENV PATH=/opt/duralog/bin:${PATH} DURALOG_CACHE_DIR=/var/cache/duralog PYTHONUNBUFFERED=1
USER duralog
RUN duralog doctor --compile
VOLUME /var/lib/duralog
EXPOSE 9092
STOPSIGNAL SIGTERM
# For the arguments below. A guarded listener needs another one: docs/howto/run-as-a-service.md has a --health-cmd.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["duralog", "topic", "list", "--quiet", "127.0.0.1:9092"]
ENTRYPOINT ["duralog"]
# --insecure: everyone who reaches the published port may read and write. docs/security.md guards it by TLS and SASL.
# A service deletes by age as Kafka's does. Other arguments replace these, the retention included.
CMD ["serve", "--data", "/var/lib/duralog", "--listen", "0.0.0.0:9092", "--insecure", "--advertise", "localhost:9092", "--override", "log.retention.hours=168"]

# Two locks, both by hash: the whole one builds the wheel, the small one is what runs. Nothing is built as it runs.
FROM python:3.11-slim AS wheel
WORKDIR /src
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements.lock
COPY . .
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist .

FROM python:3.11-slim AS install
COPY requirements-run.lock ./
RUN python -m venv /opt/governor \
 && /opt/governor/bin/pip install --no-cache-dir --require-hashes -r requirements-run.lock
COPY --from=wheel /dist /dist
RUN /opt/governor/bin/pip install --no-cache-dir --no-deps --no-index /dist/*.whl \
 && /opt/governor/bin/pip uninstall --yes pip setuptools

FROM python:3.11-slim
COPY --from=install /opt/governor /opt/governor
ENV PATH=/opt/governor/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number, so that `runAsNonRoot` can be checked without reading the image's user list.
USER 65532:65532
WORKDIR /
EXPOSE 8080
ENTRYPOINT ["governor"]
CMD ["run", "--config", "/etc/governor/governor.yaml"]
